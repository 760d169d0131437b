import pytest
import torch
from torch import Tensor

from detrame.robustness import Ball
from detrame.robustness.ball import project, stacked, steepest

CPU = torch.device("cpu")
STD = (0.25, 0.2)


def size(perturbation: Tensor, ball: Ball) -> float:
    """The norm of a perturbation in the unit of a ball, from its definition."""
    scale = torch.tensor(STD).reshape(-1, 1, 1) if ball.unit == "normalised" else torch.ones(1)
    return torch.linalg.vector_norm(perturbation / scale, float(ball.norm)).item()


def test_a_radius_in_both_units() -> None:
    ball = Ball(0.05, "normalised", std=STD)
    assert ball.pixels == pytest.approx(0.05 * 0.225)
    assert Ball(ball.pixels, "pixels", std=STD).normalised == pytest.approx(0.05)
    assert str(ball) == "2.869/255 in pixels, 0.05 normalised, norm inf"
    assert str(Ball(8 / 255, "pixels", "2")) == "8/255 in pixels, norm 2"
    assert str(Ball(9 / 255, "pixels", std=STD)) == "9/255 in pixels, 0.157 normalised, norm inf"


@pytest.mark.parametrize("norm", ["inf", "2"])
def test_what_is_projected_or_steepest_lies_on_the_sphere_of_its_own_ball(norm: str) -> None:
    balls = [Ball(0.1, "pixels", norm, STD), Ball(0.3, "normalised", norm, STD)]
    extents, shared = stacked(balls, CPU)
    assert shared == norm
    far = 10 * torch.randn(2, 2, 3, 3)
    for found in (project(far, extents, norm), steepest(far, extents, norm)):
        assert [size(v, ball) for v, ball in zip(found, balls, strict=True)] == pytest.approx([0.1, 0.3])
    near = 1e-3 * far
    assert torch.equal(project(near, extents, norm), near)


@pytest.mark.parametrize(("norm", "dual"), [("inf", 1), ("2", 2)])
def test_the_steepest_way_is_the_steepest(norm: str, dual: float) -> None:
    """It gains the dual norm of the gradient, which no perturbation of the ball exceeds."""
    extents, _ = stacked([Ball(0.3, "normalised", norm, (0.5, 0.1))], CPU)
    gradient = torch.randn(1, 2, 3, 3)
    gained = (gradient * steepest(gradient, extents, norm)).sum()
    torch.testing.assert_close(gained, torch.linalg.vector_norm(extents * gradient, dual))


def test_no_gradient_is_no_step() -> None:
    extents, norm = stacked([Ball(0.1, "pixels", "2")], CPU)
    assert not steepest(torch.zeros(1, 2, 3, 3), extents, norm).any()


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        ((0.1, "pixel"), "unknown unit of a radius 'pixel': did you mean 'pixels'"),
        ((0.1, "pixels", "1"), "unknown norm '1': choose from inf, 2"),
        ((0.0, "pixels"), "radius must be a number above 0, got 0.0"),
        ((float("nan"), "pixels"), "radius must be a number above 0"),
        ((0.1, "normalised"), "a radius in normalised units needs std"),
        ((0.1, "normalised", "2", (0.2, 0.0)), "std must be finite and positive for every channel"),
    ],
)
def test_wrong_balls(arguments: tuple[float, str], complaint: str) -> None:
    with pytest.raises(ValueError, match=complaint):
        Ball(*arguments)


def test_a_radius_has_a_unit() -> None:
    with pytest.raises(TypeError, match="unit"):
        Ball(0.1)  # type: ignore[call-arg]
    with pytest.raises(ValueError, match="crafted together in one norm, got 2, inf"):
        stacked([Ball(0.1, "pixels"), Ball(0.1, "pixels", "2")], CPU)
