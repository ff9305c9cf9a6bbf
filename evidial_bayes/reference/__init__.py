"""References: state probabilities and joint state draws for every cell, whatever made them."""
