import pytest

from evidial_bayes.export.atomic import replacing


def test_file_appears_under_its_final_name_alone(tmp_path):
    path = tmp_path / "new" / "table.csv"
    with replacing(path) as file:
        file.write_text("whole")
        assert file.suffix == ".csv"
        assert not path.exists(), "nothing under the final name while writing"
    assert path.read_text() == "whole"
    assert [p.name for p in path.parent.iterdir()] == ["table.csv"]


@pytest.mark.parametrize("error", [OSError("disk full"), KeyboardInterrupt()])
def test_interrupted_write_leaves_no_trace(tmp_path, error):
    def write(path):
        with replacing(path) as file:
            file.write_text("half")
            raise error

    with pytest.raises(type(error)):
        write(tmp_path / "table.csv")
    assert not list(tmp_path.iterdir())


def test_interrupted_write_keeps_the_old_file(tmp_path):
    path = tmp_path / "table.csv"
    path.write_text("old")

    def write():
        with replacing(path) as file:
            file.write_text("half")
            raise OSError("disk full")

    with pytest.raises(OSError, match="disk full"):
        write()
    assert path.read_text() == "old"
    with replacing(path) as file:
        file.write_text("new")
    assert path.read_text() == "new"
    assert len(list(tmp_path.iterdir())) == 1


def test_a_writer_that_writes_nothing_is_an_error(tmp_path):
    def forget():
        with replacing(tmp_path / "table.csv"):
            pass

    with pytest.raises(FileNotFoundError):
        forget()
