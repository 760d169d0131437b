r"""``min over u >= 0 of 1/2 u'Hu - g'u`` for many g at once and one dense H: exactly, quickly, and differentiably.

Which codes are not zero is all that is hard to know: given them, the rest is one linear system a sample. A few steps
of Douglas-Rachford splitting in single precision guess these supports, and the systems on them are solved in double
precision: by conjugate gradients, which are products with H alone, where H is well conditioned, else by a batched
Cholesky factorisation. The optimality condition says which samples are done. The others exchange the coordinates that
break it (a semismooth Newton step), and are split again, for twice as many steps, where that does not settle it.
"""

import math
import warnings
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, cast

import torch
from torch import Tensor
from torch.nn import functional as F

from detrame.errors import check_type

TOLERANCE = 1e-11  # on the optimality condition, relative to a sample's largest code
_FIRST_STEPS = 16  # of the splitting; doubled whenever it is called again
_RELAXATION = 0.9  # how much of a step is new; below 1
# How much of the identity a call adds to H. 1, the mean eigenvalue, suits most problems; what it does not settle, atoms
# that are much alike, may want far less or far more.
_SHARES = 1.0, 0.1, 10.0, 0.01, 100.0, 0.001
_EXCHANGES = 4  # between two calls of the splitting
_CALLS = 13  # of it, before a sample is given up: a hundred thousand steps
_SINGLE_PRECISION_CALLS = 3  # where these do not tell the support, only double precision can
_SINGULAR = 1e-15  # the square of a pivot, for a unit diagonal, below which a system counts as singular
_FILTER = 1e-8  # eigenvalues well below it are left out of the inverse of a singular system
_SQUARINGS = 6  # of the matrix, for the bound on its norm
# Condition numbers up to which conjugate gradients were measured to be the faster solver: on a CPU none.
_WELL_CONDITIONED, _WELL_CONDITIONED_ELSEWHERE = {"cpu": 0.0}, 10.0
_NEGLIGIBLE = 1e-12  # of what is solved for, where conjugate gradients end; it is looked for
_LOOK_EVERY = 4  # iterations
# Codes that are solved for together: what fits the cache of a CPU, 128 MiB in float64 elsewhere.
_PART, _PART_ELSEWHERE = {"cpu": 1 << 19}, 1 << 24
# Entries of the systems that are factorised at once: what fits the cache of a CPU, half a gigabyte elsewhere.
_CHUNK, _CHUNK_ELSEWHERE = {"cpu": 1 << 18}, 1 << 26


def nonnegative_minimiser(hessian: Tensor, target: Tensor) -> Tensor:
    r"""The exact minimiser over codes >= 0, and its derivative.

    .. math:: \arg\min_{u \ge 0} \tfrac12 u'Hu - g'u

    It is solved in float64, whatever the precision of the arguments, until each sample meets the optimality condition
    to 1e-11 of its largest code. A sample that does not get there in a hundred thousand steps is given up with a
    warning.

    The derivative comes from the condition at the solution, :math:`H_{AA} u_A = g_A` on the active set
    :math:`A = \{i: u_i > 0\}`. With :math:`w_A = H_{AA}^{-1} v_A` and 0 elsewhere, a gradient v of the code gives w for
    g and :math:`-(w u' + u w') / 2` for H. It needs no record of how the solution was found, and can be differentiated
    again; `torch.func` and vmap have no rule for it. Where :math:`H_{AA}` is singular, the code is not unique, and w is
    the one of least norm.

    Args:
        hessian: H, ``(k, k)``, symmetric and positive semidefinite; where it is singular, -g must keep the minimum
            finite (a positive sparsity does).
        target: g, ``(..., k)``.

    Returns:
        The code, of the shape and the dtype of `target`.
    """
    for name, tensor in (("hessian", hessian), ("target", target)):
        check_type(name, tensor, Tensor, "a tensor")
        if not tensor.is_floating_point():
            raise TypeError(f"{name} must be a real floating-point tensor, got {tensor.dtype}")
    if hessian.ndim != 2 or not 0 < hessian.shape[0] == hessian.shape[1] or target.shape[-1:] != hessian.shape[:1]:
        shapes = f"{tuple(hessian.shape)} and {tuple(target.shape)}"
        raise ValueError(f"expected a hessian (k, k) and a target (..., k), got shapes {shapes}")
    return cast(Tensor, _Minimiser.apply(hessian, target, None, None))  # type: ignore[no-untyped-call]


class _Minimiser(torch.autograd.Function):
    """The minimiser; with a support A ``(N, k)``, the solution on it: ``H_AA^-1 g_A``, and 0 elsewhere.

    On its own support the minimiser is that solution, and the derivative of either is made of such solutions: so the
    backward pass calls this function again, and can be differentiated itself.
    """

    @staticmethod
    def forward(ctx: Any, hessian: Tensor, target: Tensor, problem: "Problem | None", support: Tensor | None) -> Tensor:
        rows = target.reshape(-1, target.shape[-1])
        problem = problem or Problem.of(hessian)
        code = _minimised(problem, rows) if support is None else _on_support(problem, rows, support)
        code = code.reshape(target.shape)
        ctx.save_for_backward(hessian, code)
        ctx.problem, ctx.support = problem, support
        return code

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        hessian, code = ctx.saved_tensors
        codes = code.reshape(-1, code.shape[-1])
        support = codes.detach() > 0 if ctx.support is None else ctx.support
        dual = _Minimiser.apply(hessian, gradient, ctx.problem, support)  # type: ignore[no-untyped-call]
        with torch.autocast(code.device.type, enabled=False):
            outer = dual.reshape(codes.shape).mT @ codes
        return -(outer + outer.mT) / 2, dual, None, None


def _minimised(problem: "Problem", target: Tensor) -> Tensor:
    atoms = target.shape[1]  # a part costs a few passes over H, so it has as many rows at least
    parts = torch.split(target, max(atoms, _PART.get(target.device.type, _PART_ELSEWHERE) // atoms))
    code = torch.cat([_solved(problem, part).to(target.dtype) for part in parts])
    problem._resolvents.clear()  # the problem is kept for the backward pass, which needs none
    return code


def _on_support(problem: "Problem", target: Tensor, support: Tensor) -> Tensor:
    right = problem.scale * target.double()
    return (problem.scale * problem.solve_on(support, right, right.abs().amax(1))).to(target.dtype)


@dataclass(frozen=True, eq=False)
class Problem:
    """What all samples share: H, scaled to a diagonal of 1, in float64.

    Attributes:
        hessian: ``SHS``, ``(k, k)``.
        scale: the diagonal of S, ``(k,)``.
    """

    hessian: Tensor
    scale: Tensor
    _resolvents: dict[float, Tensor] = field(default_factory=dict)

    @classmethod
    def of(cls, hessian: Tensor) -> "Problem":
        """That of H as it was given."""
        return cls(*_unit_diagonal(hessian))

    def resolvent(self, share: float) -> Tensor:
        """``(share I + SHS)^-1``, kept for the samples that are solved for later."""
        if share not in self._resolvents:
            identity = torch.eye(len(self.scale), dtype=self.scale.dtype, device=self.scale.device)
            self._resolvents[share], _ = torch.linalg.inv_ex(self.hessian + share * identity)
        return self._resolvents[share]

    @cached_property
    def condition(self) -> float:
        """At least the condition number, that of all the systems on supports too; infinite if it may be."""
        inverse, failed = torch.linalg.inv_ex(self.hessian)
        condition = torch.where(failed == 0, _norm_bound(self.hessian) * _norm_bound(inverse), torch.inf)
        return condition.nan_to_num(nan=torch.inf).item()

    def solve_on(self, support: Tensor, right: Tensor, size: Tensor) -> Tensor:
        """``H_AA^-1 r_A`` on each sample's support A, a row of `support` ``(N, k)``, and 0 elsewhere: ``(N, k)``.

        Accurate relative to `size` ``(N,)``, that of what a sample's solution is a part of.
        """
        well_conditioned = _WELL_CONDITIONED.get(right.device.type, _WELL_CONDITIONED_ELSEWHERE)
        if not well_conditioned or self.condition > well_conditioned:
            return _by_factorisation(support, self.hessian, right)
        return _by_conjugate_gradients(support, self.hessian, right, size, self.condition)


@torch.no_grad()
def solve(problem: Problem, target: Tensor) -> tuple[Tensor, Tensor]:
    """The codes ``(N, k)`` of the targets ``(N, k)`` in float64, and how far each is from optimal ``(N,)``.

    The residual is the largest change of a code that is made optimal given the others, relative to the largest code
    (codes being measured in atoms of unit norm, ``H_ii = 1``); it is above 1e-11 only for a sample that was given up.
    A sample that holds NaN or infinity has the code NaN, and so has every sample where H does.
    """
    unit, scale = problem.hessian, problem.scale
    target = scale * target.double()
    code, residual = torch.full_like(target, torch.nan), target.new_zeros(len(target))
    # A code grows with the largest target: all are solved for at one size, as single precision would not hold every
    # other. A target far below 0, as that of a tiny atom, has no part in that.
    limits = torch.finfo(target.dtype)
    size = target.amax(1, keepdim=True).clamp_min(limits.tiny)
    row = (target.isfinite().all(1) & unit.isfinite().all()).nonzero().flatten()  # the samples that are not done yet
    target = (target / size)[row].clamp_min(limits.min)
    state = torch.zeros_like(target)
    for call in range(_CALLS):
        dtype = torch.float32 if call < _SINGLE_PRECISION_CALLS else torch.float64
        # Hu is nowhere below -|Du|, so a target that is lower has the code 0, however low it is; left so low, it
        # would be all that the splitting sees. |Du|^2 = g'u is at most that of the positive part of g.
        reach = (target.relu() * state.relu()).sum(1, keepdim=True).clamp_min(1).sqrt()
        near = torch.maximum(target, -2 * reach)
        state = _split(problem, near, state, _FIRST_STEPS << call, _SHARES[call % len(_SHARES)], dtype)
        point, support = state.double(), state > 0
        for _ in range(_EXCHANGES):
            point = torch.where(support, point, 0)
            point = point + problem.solve_on(support, torch.addmm(target, point, unit, alpha=-1), point.amax(1))
            better, distance = _improved(point, unit, target)
            code[row], residual[row] = point.relu(), distance
            left = (~(distance <= TOLERANCE)).nonzero().flatten()  # NaN, of an indefinite H, is not optimal
            if not len(left):
                return code * size * scale, residual
            row, target, state, point, better = (tensor[left] for tensor in (row, target, state, point, better))
            support = better > 0
    point = state.double().relu()
    code[row], residual[row] = point, _improved(point, unit, target)[1]
    return code * size * scale, residual


def _solved(problem: Problem, target: Tensor) -> Tensor:
    """The codes of :func:`solve`; a warning, the same every time so that it is shown once, if a sample was given up."""
    code, residual = solve(problem, target)
    if not (residual <= TOLERANCE).all():
        warnings.warn(
            f"some codes are not solved to {TOLERANCE:g} of the largest: their atoms are nearly dependent, so a larger "
            "damping would help",
            stacklevel=2,
        )
    return code


def _improved(code: Tensor, hessian: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
    """Every coordinate made optimal given the others, and the largest change, relative to the largest code."""
    better = torch.addmm(target, code, hessian, alpha=-1).add_(code).relu_()
    largest = better.amax(1).clamp_min(torch.finfo(code.dtype).tiny)
    distance = torch.linalg.vector_norm(better - code, torch.inf, dim=1) / largest
    # A code that rounding made huge along dependent atoms is far from all that matters, but not relative to itself. At
    # a minimum g'u is u'Hu; there it is negative.
    astray = (target * code).sum(1) < -TOLERANCE * largest
    return better, distance.masked_fill(astray, torch.inf)


def _unit_diagonal(hessian: Tensor) -> tuple[Tensor, Tensor]:
    """``SHS`` in float64 with the diagonal 1, and the diagonal of S."""
    hessian = hessian.double()
    # An atom of no norm, and without damping, has the code 0; a diagonal of 1 tells that as well as one of 0.
    hessian = hessian + torch.diag((hessian.diagonal() <= 0).double())
    scale = hessian.diagonal().rsqrt()
    return scale[:, None] * hessian * scale, scale


def _norm_bound(matrix: Tensor) -> Tensor:
    """At least the largest eigenvalue, and at most k^(1/64) times it: the 64th root of the trace of the 64th power."""
    logarithm = matrix.new_zeros(())
    for _ in range(_SQUARINGS):
        trace = matrix.diagonal().sum()
        matrix = matrix / trace
        matrix, logarithm = matrix @ matrix, 2 * (logarithm + trace.log())
    return ((logarithm + matrix.diagonal().sum().log()) / 2**_SQUARINGS).exp()


def _split(problem: Problem, target: Tensor, state: Tensor, steps: int, share: float, dtype: torch.dtype) -> Tensor:
    """The states ``u + g - Hu`` after some steps of Douglas-Rachford splitting, computed in `dtype`.

    A code is optimal where it is the positive part of its state. For any share r > 0 that is where the state, its
    negative part divided by r, is an x with ``x = (rI + H)^-1 (2g + (rI - H)|x|)``. Both sides are averaged, which
    converges: the right side never moves away from such an x.
    """
    resolvent = 2 * _RELAXATION * problem.resolvent(share)
    reflection = share * resolvent - _RELAXATION * torch.eye(len(resolvent), dtype=resolvent.dtype, device=state.device)
    x, reflection = F.leaky_relu(state.to(dtype), 1 / share), reflection.to(dtype)
    size = torch.empty_like(x)
    with torch.autocast(x.device.type, enabled=False):
        constant = target.to(dtype) @ resolvent.to(dtype)
        for _ in range(steps):
            torch.abs(x, out=size)
            torch.add(constant, x, alpha=1 - _RELAXATION, out=x).addmm_(size, reflection)
    return F.leaky_relu(x, share)


def _by_conjugate_gradients(support: Tensor, hessian: Tensor, right: Tensor, size: Tensor, condition: float) -> Tensor:
    """The solutions on the supports, up to a residual that is negligible against `size`."""
    residual = torch.where(support, right, 0)
    solution, direction = torch.zeros_like(residual), residual
    left = torch.linalg.vector_norm(residual, dim=1, keepdim=True)
    enough = _NEGLIGIBLE * size[:, None]
    tiny = torch.finfo(right.dtype).tiny
    for iteration in range(_iterations(condition)):
        if iteration % _LOOK_EVERY == 0 and bool((left <= enough).all()):
            break
        image = torch.where(support, direction @ hessian, 0)
        length = left.square() / (direction * image).sum(1, keepdim=True).clamp_min(tiny)
        solution = torch.addcmul(solution, length, direction)
        residual = torch.addcmul(residual, length, image, value=-1)
        before, left = left, torch.linalg.vector_norm(residual, dim=1, keepdim=True)
        direction = torch.addcmul(residual, (left / before.clamp_min(tiny)).square(), direction)
    return solution


def _iterations(condition: float) -> int:
    """So many that the error is surely negligible: each leaves at most (sqrt(c) - 1) / (sqrt(c) + 1) of it."""
    root = math.sqrt(max(condition, 1.0))
    rate = (root - 1) / (root + 1)
    return 1 if rate == 0 else math.ceil(math.log(_NEGLIGIBLE / (2 * condition)) / math.log(rate))


def _by_factorisation(support: Tensor, hessian: Tensor, right: Tensor) -> Tensor:
    """The solutions on the supports.

    Samples with supports of about one size are taken together, filled up with rows of the identity.
    """
    counts, order = support.sum(1).sort(descending=True)
    sample, atom = support[order].nonzero(as_tuple=True)
    ends = counts.cumsum(0)
    place = torch.arange(len(sample), device=right.device) - (ends - counts)[sample]  # within the sample's support
    size = len(hessian)
    padded = torch.eye(2 * size, dtype=hessian.dtype, device=hessian.device)  # filling p of a sample is index size + p
    padded[:size, :size] = hessian
    entries = right[order[sample], atom]
    start = first = 0
    while start < len(order) and (largest := int(counts[start])):
        count = max(1, _CHUNK.get(right.device.type, _CHUNK_ELSEWHERE) // largest**2)
        stop = min(start + count, len(order))
        last = int(ends[stop - 1])
        here = sample[first:last] - start, place[first:last]
        index = torch.arange(size, size + largest, device=right.device).repeat(stop - start, 1)
        index[here] = atom[first:last]
        places = index[:, :, None] * 2 * size + index[:, None, :]
        systems = padded.flatten().index_select(0, places.flatten()).view(places.shape)  # faster than two indices
        sides = right.new_zeros(stop - start, largest)
        sides[here] = entries[first:last]
        entries[first:last] = _solve(systems, sides)[here]
        start, first = stop, last
    result = torch.zeros_like(right)
    result[order[sample], atom] = entries
    return result


def _solve(systems: Tensor, right: Tensor) -> Tensor:
    """``(n, s)``, the solutions of symmetric systems ``(n, s, s)`` of unit diagonal; of least norm where singular."""
    factors, failed = torch.linalg.cholesky_ex(systems)
    solved = torch.cholesky_solve(right[..., None], factors)
    regular = (failed == 0) & (factors.diagonal(dim1=1, dim2=2).square() > _SINGULAR).all(1)
    singular = (~regular).nonzero().flatten()
    if len(singular):
        # (M + eps)^-1 M (M + eps)^-1 is the inverse where eigenvalues are large, and 0 where they are 0.
        systems, right = systems[singular], right[singular]
        identity = torch.eye(systems.shape[1], dtype=systems.dtype, device=systems.device)
        factors, _ = torch.linalg.cholesky_ex(systems + _FILTER * identity)
        once = torch.cholesky_solve(right[..., None], factors)
        solved[singular] = torch.cholesky_solve(systems @ once, factors)
    return solved[..., 0]
