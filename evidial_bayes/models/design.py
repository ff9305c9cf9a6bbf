"""The design of the prevalence regression."""

import numpy as np
import pandas as pd
from formulaic import Formula
from formulaic.errors import FormulaicError

from evidial_bayes.data.errors import InputError, suggest
from evidial_bayes.data.panel import Panel


def prevalence_design(formula: str, panel: Panel) -> tuple[np.ndarray, pd.Index]:
    """Covariates of every cell as numbers, centred over the cells to which prevalence applies.

    Factors are coded by treatment (each level against the first); centring makes the intercept the state of affairs at
    the average cell. Terms that do not vary over the panel, such as a factor with one level, leave no column.

    Parameters
    ----------
    formula
        One-sided formula in the columns of the table of cells, for example ``~ source + dimension_group``.
    panel
        Cells and their covariates.

    Returns
    -------
    design
        Float ``[cell, effect]``.
    effect
        Names of the columns.

    Raises
    ------
    InputError
        The formula cannot be read, has a left-hand side, names a column that the cells lack, or a covariate has
        missing values.
    """
    where = f"prevalence_formula '{formula}'"
    try:
        parsed = Formula(formula)
    except FormulaicError as error:
        raise InputError(f"{where} cannot be read: {error}") from error
    if not isinstance(parsed, list) and hasattr(parsed, "lhs"):
        raise InputError(f"{where} has a left-hand side; allowed: covariates only, such as '~ source'.")
    cells = panel.cells
    for variable in sorted(map(str, parsed.required_variables)):
        if variable not in cells:
            columns = ", ".join(map(str, cells.columns))
            raise InputError(
                f"{where} names '{variable}', which the table of cells does not have.{suggest(variable, cells.columns)}"
                f" Columns: {columns}."
            )
        if (missing := cells[variable].isna()).any():
            raise InputError(
                f"{where}: '{variable}' is empty for {int(missing.sum())} cells, the first is "
                f"'{cells.index[missing.argmax()]}'; every cell needs a value."
            )
    try:
        matrix = parsed.get_model_matrix(cells.reset_index(drop=True), na_action="raise")
    except (FormulaicError, ValueError, TypeError) as error:
        raise InputError(f"{where} cannot be applied to the table of cells: {error}") from error
    values = np.asarray(matrix, dtype=np.float64)
    if not np.isfinite(values).all():
        raise InputError(f"{where} gives values that are not finite.")
    sampled = values[~panel.constructed] if (~panel.constructed).any() else values
    varies = np.ptp(sampled, axis=0) > 0
    return values[:, varies] - sampled[:, varies].mean(0), pd.Index(matrix.columns[varies], name="effect")
