import pytest
import torch

from detrame import operators
from tests.conftest import STRUCTURES, dense_matrix, problem


@pytest.fixture(params=STRUCTURES)
def structure(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def size_of(structure: str) -> tuple[int, ...]:
    shape, input_shape = STRUCTURES[structure]
    return input_shape[2:] if len(shape) > 2 else ()


def test_apply_is_the_matrix_written_entry_by_entry(structure: str) -> None:
    z, weight, _, bias = problem(structure)
    matrix = dense_matrix(weight, size_of(structure))
    per_entry = bias.repeat_interleave(len(matrix) // len(bias))
    expected = (z.reshape(-1, len(matrix)) @ matrix.T + per_entry).reshape(z.shape)
    torch.testing.assert_close(operators.apply(weight, z, bias), expected)
    torch.testing.assert_close(operators.to_dense(weight, size_of(structure)), matrix)


def test_transpose_diagonal_scale_and_ungroup_are_those_of_the_matrix(structure: str) -> None:
    _, weight, gain, threshold = problem(structure)
    size = size_of(structure)
    matrix = dense_matrix(weight, size)
    repeat = len(matrix) // len(gain)
    rows, columns = gain.repeat_interleave(repeat), threshold.repeat_interleave(repeat)
    torch.testing.assert_close(dense_matrix(operators.transpose(weight), size), matrix.T)
    torch.testing.assert_close(dense_matrix(operators.ungroup(weight), size), matrix)
    torch.testing.assert_close(dense_matrix(operators.add_diagonal(weight, gain), size), matrix + torch.diag(rows))
    scaled = operators.scale(weight, gain, threshold)
    torch.testing.assert_close(dense_matrix(scaled, size), rows[:, None] * matrix * columns)


def test_diagonal_is_a_view(structure: str) -> None:
    _, weight, _, _ = problem(structure)
    operators.diagonal(weight).fill_(7)
    assert (dense_matrix(weight, size_of(structure)).diagonal() == 7).all()


@pytest.mark.parametrize(
    ("shape", "complaint"),
    [
        ((3,), "must have shape"),
        ((3, 3, 1, 1, 1, 1), "must have shape"),
        ((0, 3), "must have shape"),
        ((5, 2), "2 inputs per group do not divide 5 channels"),
        ((4, 4, 2), "odd kernel"),
    ],
)
def test_a_weight_of_another_layout_is_refused(shape: tuple[int, ...], complaint: str) -> None:
    with pytest.raises(ValueError, match=complaint):
        operators.check_weight(torch.zeros(shape), "coupling")
