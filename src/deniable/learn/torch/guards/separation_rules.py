"""Rules for torch's operations that keep examples apart: from the domains of the inputs to the domains of the outputs.

See `separation_trace` for the meaning of a domain. A rule returns None if it cannot show that examples stay apart; then
the result is mixed. Operations without a rule, such as those that reorder or reduce along the examples, are mixed too.
The docstring of a rule states for which inputs examples stay apart. The rule alone decides; nothing is tried on data.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import torch
from torch import Tensor
from torch._ops import OpOverload

from deniable.learn.torch.guards.tensor_domains import Domain, ExampleRows, GivenOperation, MixedExamples, Same


def domains(given: GivenOperation, made: list[Tensor]) -> list[Domain]:
    """The domain of each output of an operation."""
    listed = zip(_by_rules(given, made), made, strict=True)
    return [
        MixedExamples(f"{given.name}, whose output has fewer examples than the batch")
        if isinstance(found, ExampleRows) and not _has_all(found, each.shape, given.count)
        else found
        for found, each in listed
    ]


def _has_all(rows: ExampleRows, shape: Sequence[int], count: int) -> bool:
    return rows.axis < len(shape) and shape[rows.axis] % (count * rows.after) == 0


def unknown(given: GivenOperation, tensor: Tensor) -> Domain:
    """The domain of an output if no rule applies."""
    for each in given.domains:
        if isinstance(each, MixedExamples):
            return each
    if all(isinstance(each, Same) for each in given.domains):
        return Same.varying(tensor)
    is_combined = given.name.removeprefix("aten::") in COMBINING and given.tensors[0].is_floating_point()
    why = f"{given.name}, which reorders, gathers or reduces along the examples, or is not known"
    return MixedExamples(why, is_combined)


def _by_rules(given: GivenOperation, made: list[Tensor]) -> list[Domain]:
    for each in given.domains:
        if isinstance(each, MixedExamples):
            return [each] * len(made)
    name = given.name.removeprefix("aten::")
    if given.is_repeatable:  # a person who knows the seed knows the number at each place
        mixed = MixedExamples(f"random numbers whose seed may be known ({given.name}), other ones for other batches")
        same = all(isinstance(each, Same) for each in given.domains)
        return [Same.varying(each) if same else mixed for each in made]
    if given.has_out:  # rules cover inputs, and out= is among the tensors
        return [unknown(given, each) for each in made]
    if name == "arange":
        return [_counted(given, each) for each in made]
    if name in ("randperm", "eye", "linspace", "tril_indices", "triu_indices"):
        return [Same.varying(each) for each in made]
    if _is_constant(name):
        return [Same.constant(each) for each in made]
    rule = RULES.get(name) or RULES.get(name.removesuffix("_"))
    if rule is None and _is_pointwise(given.func):
        rule = _pointwise
    if rule is not None:
        found = rule(given, made)
        if found is not None:
            return found if isinstance(found, list) else [found] * len(made)
    return [unknown(given, each) for each in made]


def has_rule(func: OpOverload) -> bool:
    """Whether a rule covers this operation. Then shapes of its outputs do not depend on values."""
    name = func._schema.name.removeprefix("aten::")
    return name in RULES or name.removesuffix("_") in RULES or _is_constant(name) or _is_pointwise(func)


def _is_constant(name: str) -> bool:
    is_own = "::" not in name  # an operation of another library may have any name
    return is_own and (name in CONSTANT or name.endswith("_like") or name.startswith("new_"))


def _is_pointwise(func: OpOverload) -> bool:
    """Whether torch tags one of its own operations as pointwise. Tags by other libraries are not trusted."""
    return func.namespace == "aten" and torch.Tag.pointwise in func.tags


def _counted(given: GivenOperation, made: Tensor) -> Same:
    """The domain of `arange`. If it starts at 0 and has one number for each example, its step is remembered."""
    step = given.value("step")
    step = 1 if step is None else step
    in_order = given.value("start") in (None, 0) and isinstance(step, int) and made.numel() == given.count
    return Same(tuple(made.shape), step if in_order else 0)


CONSTANT = frozenset({"zeros", "ones", "full", "empty", "rand", "randn", "randint", "scalar_tensor", "empty_strided"})
"""Operations whose output has one value everywhere, or random numbers of one distribution everywhere."""

COMBINING = frozenset(
    {
        *("sum", "mean", "var", "std", "var_mean", "std_mean", "linalg_vector_norm", "norm", "logsumexp", "prod"),
        *("_softmax", "_log_softmax", "_safe_softmax", "cumsum", "cumprod", "logcumsumexp"),
        *("mm", "addmm", "bmm", "baddbmm", "mv", "native_layer_norm", "native_batch_norm"),
    }
)
"""Operations that, along the examples, compute each number from several examples. For one example alone, the result
would mean something else.
"""

Rule = Callable[[GivenOperation, list[Tensor]], "Domain | list[Domain] | None"]
"""(operation, outputs) -> the domain of all outputs, or of each; None if examples may not stay apart."""


Part = tuple[Sequence[int], Domain]
"""Shape and domain of a tensor."""


def _together(parts: Sequence[Part], dim: int) -> Domain | None:
    """The domain of an elementwise combination of tensors that are broadcast to `dim` axes."""
    rows: ExampleRows | None = None
    periods = [1] * dim
    for shape, domain in parts:
        more = dim - len(shape)
        if isinstance(domain, ExampleRows):
            here = ExampleRows(domain.axis + more, domain.after)
            if rows is not None and rows != here:
                return None
            rows = here
        elif isinstance(domain, Same):
            for axis, period in enumerate(domain.periods):
                if shape[axis] != 1:
                    periods[axis + more] = math.lcm(periods[axis + more], period)
    # Values that do not depend on the data may differ within an example, but not between examples: a value that does
    # would be a position in the batch.
    if rows is not None:
        return rows if rows.after % periods[rows.axis] == 0 else None
    return Same(tuple(periods))


def _parts(given: GivenOperation) -> list[Part]:
    return [(each.shape, domain) for each, domain in zip(given.tensors, given.domains, strict=True)]


def _pointwise(given: GivenOperation, made: list[Tensor]) -> Domain | None:
    if given.value("reduction") not in (None, 0):
        return None
    return _together(_parts(given), made[0].dim())


def _alike(given: GivenOperation, made: list[Tensor]) -> Domain | None:
    """Copies and aliases: the output has the domain of the input."""
    return given.domains[0]


def _dropped(given: GivenOperation, made: list[Tensor]) -> Domain | None:
    """Dropout: the output has the domain of the input. Of a tensor without data, only the step is forgotten."""
    domain = given.domains[0]
    return Same(domain.periods) if isinstance(domain, Same) else domain


def _copied(given: GivenOperation, made: list[Tensor]) -> Domain | None:
    """`copy_`: the domain of the source, since the old values are overwritten."""
    return _together(_parts(given)[1:2], made[0].dim())


def _viewed(given: GivenOperation, made: list[Tensor]) -> Domain | None:
    (x, domain), out = given.first, made[0]
    if out.numel() != x.numel():
        return None
    if isinstance(domain, ExampleRows):
        return given.found_by_runs(out.shape, given.runs(x, domain))
    assert isinstance(domain, Same)
    if set(domain.periods) <= {1}:
        return Same.constant(out)
    kept = 0
    while kept < min(x.dim(), out.dim()) and x.shape[kept] == out.shape[kept]:
        kept += 1
    return Same((*domain.periods[:kept], *out.shape[kept:]))


def _moved(domain: Domain, order: Sequence[int]) -> Domain:
    """The domain after a permutation of the axes: the new axis k is the old axis order[k]."""
    if isinstance(domain, ExampleRows):
        return ExampleRows(list(order).index(domain.axis), domain.after)
    assert isinstance(domain, Same)
    return Same(tuple(domain.periods[each] for each in order))


def _permuted(given: GivenOperation, made: list[Tensor]) -> Domain | None:
    x, domain = given.first
    order = list(range(x.dim()))
    if given.value("dims") is not None:
        order = [each % x.dim() for each in given.value("dims")]
    else:
        one, other = (0, -1) if given.value("dim0") is None else (given.value("dim0"), given.value("dim1"))
        if order:
            order[one], order[other] = order[other], order[one]
    return _moved(domain, order)


def _unsqueezed(given: GivenOperation, made: list[Tensor]) -> Domain | None:
    at, (_, domain) = given.value("dim") % made[0].dim(), given.first
    if isinstance(domain, ExampleRows):
        return ExampleRows(domain.axis + (at <= domain.axis), domain.after)
    assert isinstance(domain, Same)
    return Same((*domain.periods[:at], 1, *domain.periods[at:]))


def _without(domain: Domain, dims: set[int], *, keep: bool) -> Domain | None:
    """The domain without the axes in `dims`, or with length 1 there. None if the examples lie along one of them."""
    if isinstance(domain, ExampleRows):
        if domain.axis in dims:
            return None
        return domain if keep else ExampleRows(domain.axis - sum(each < domain.axis for each in dims), domain.after)
    assert isinstance(domain, Same)
    left = [1 if axis in dims else period for axis, period in enumerate(domain.periods) if keep or axis not in dims]
    return Same(tuple(left))


def _dims(given: GivenOperation, x: Tensor) -> set[int]:
    """The axes that an operation names; all axes if it names none."""
    asked = given.value("dim", "dims")
    listed = [asked] if isinstance(asked, int) else list(asked or range(x.dim()))
    return {each % max(x.dim(), 1) for each in listed}


def _squeezed(given: GivenOperation, made: list[Tensor]) -> Domain | None:
    x, domain = given.first
    if torch.Tag.inplace_view in given.func.tags:  # the axes are removed already, so it is unknown which
        return None
    return _without(domain, {each for each in _dims(given, x) if x.shape[each] == 1}, keep=False)


def _reduced(given: GivenOperation, made: list[Tensor]) -> Domain | None:
    x, domain = given.first
    return _without(domain, _dims(given, x), keep=bool(given.value("keepdim")))


def _along(given: GivenOperation, made: list[Tensor]) -> Domain | None:
    """Operations along the axes that they name (softmax, cumsum, sort): examples stay apart unless they lie along one
    of these axes.
    """
    x, domain = given.first
    if isinstance(domain, ExampleRows):
        return None if domain.axis in _dims(given, x) else domain
    return Same.varying(made[0])


def _sliced(given: GivenOperation, made: list[Tensor]) -> Domain | None:
    x, domain = given.first
    axis = given.value("dim") % x.dim()
    if isinstance(domain, ExampleRows):
        return None if axis == domain.axis and any(each.shape[axis] != x.shape[axis] for each in made) else domain
    return domain


def _selected(given: GivenOperation, made: list[Tensor]) -> Domain | None:
    x, domain = given.first
    return _without(domain, {given.value("dim") % x.dim()}, keep=False)


def _spread(given: GivenOperation, made: list[Tensor]) -> Domain | None:
    """`expand` and `repeat`: a repeated axis keeps its period, or has its old length as period if the period does not
    divide it."""
    (x, domain), out = given.first, made[0]
    more = out.dim() - x.dim()
    if isinstance(domain, ExampleRows):
        here = ExampleRows(domain.axis + more, domain.after)
        return here if out.shape[here.axis] == x.shape[domain.axis] else None
    assert isinstance(domain, Same)
    kept = zip(domain.periods, x.shape, strict=True)
    return Same((*[1] * more, *(length if length % period else period for period, length in kept)))


def _joined(given: GivenOperation, made: list[Tensor]) -> Domain | None:
    out = made[0]
    axis, parts = (given.value("dim") or 0) % out.dim(), _parts(given)
    if given.name == "aten::stack":
        parts = [((*shape[:axis], 1, *shape[axis:]), _inserted(domain, axis)) for shape, domain in parts]
    found = _together([each for each in parts if len(each[0]) == out.dim()], out.dim())  # empty ones may have one axis
    if isinstance(found, Same):
        return Same((*found.periods[:axis], out.shape[axis], *found.periods[axis + 1 :]))
    return None if found is None or (isinstance(found, ExampleRows) and found.axis == axis) else found


def _inserted(domain: Domain, at: int) -> Domain:
    if isinstance(domain, ExampleRows):
        return ExampleRows(domain.axis + (at <= domain.axis), domain.after)
    assert isinstance(domain, Same)
    return Same((*domain.periods[:at], 1, *domain.periods[at:]))


def _product(given: GivenOperation, made: list[Tensor]) -> Domain | None:
    """Products of matrices, or batches of them: (n, k) acts like (n, 1), (k, m) like (1, m), and k is summed over."""
    *added, (one, left), (other, right) = _parts(given)
    assert not isinstance(left, MixedExamples)
    assert not isinstance(right, MixedExamples)
    if isinstance(left, ExampleRows) and left.axis == len(one) - 1:
        return None
    if isinstance(right, ExampleRows) and right.axis == max(len(other) - 2, 0):
        return None
    parts = [*added, ((*one[:-1], 1), left if isinstance(left, ExampleRows) else Same((*left.periods[:-1], 1)))]
    if len(other) > 1:
        of_right = right if isinstance(right, ExampleRows) else Same((*right.periods[:-2], 1, right.periods[-1]))
        parts.append(((*other[:-2], 1, other[-1]), of_right))
    found = _together(parts, max(made[0].dim(), 2))
    if made[0].dim() == 1 and isinstance(found, ExampleRows | Same):  # a vector has no columns
        return _without(found, {1}, keep=False)
    return found


def _in_front(given: GivenOperation, made: list[Tensor]) -> Domain | None:
    """Operations that compute each entry of the first axis from the same entry of their inputs (convolutions, pooling,
    attention, group norms): examples stay apart if they lie along the first axis of the first input, and of every other
    input that has data.
    """
    rows = {each for each in given.domains if isinstance(each, ExampleRows)}
    if not rows:
        return Same.varying(made[0])
    here = next(iter(rows))
    if len(rows) > 1 or here.axis != 0 or not isinstance(given.domains[0], ExampleRows):
        return None
    if any(each.dim() and each.shape[0] != given.tensors[0].shape[0] for each in made[:1]):
        return None
    return here


def _convolved(given: GivenOperation, made: list[Tensor]) -> Domain | None:
    if given.value("N") not in (None, given.tensors[0].shape[0]):  # an argument of group norms
        return None
    if any(not isinstance(each, Same) for each in given.domains[1:]):
        return None
    return _in_front(given, made)


def _attended(given: GivenOperation, made: list[Tensor]) -> Domain | list[Domain] | None:
    """Attention: examples stay apart if queries, keys and values all have them along the first axis, and a mask repeats
    with a period that divides an example. A mask of fewer axes than the queries would have queries where the examples
    are: it must not depend on the data.
    """
    found = _in_front(given, made)
    if not isinstance(found, ExampleRows):
        return found
    for shape, domain in _parts(given):
        if isinstance(domain, ExampleRows) and len(shape) < len(given.tensors[0].shape):
            return None
        if isinstance(domain, Same) and len(shape) == 4 and shape[0] != 1 and found.after % domain.periods[0]:
            return None
    if not all(isinstance(each, ExampleRows) for each in given.domains[:3]):
        return None
    rest: list[Domain] = [found if each.dim() > 2 else MixedExamples("inside of attention") for each in made[1:]]
    return [found, *rest]


def _looked_up(given: GivenOperation, made: list[Tensor]) -> Domain | None:
    """Embeddings: each id picks a row of the weight. Examples stay apart if only the ids have data, and if the gradient
    of a row is not divided by how often all ids name it.
    """
    if not isinstance(given.domains[0], Same) or given.value("scale_grad_by_freq"):
        return None
    domain = given.domains[1]
    if isinstance(domain, ExampleRows):
        return domain
    assert isinstance(domain, Same)
    return Same((*domain.periods, made[0].shape[-1]))


def _bagged(given: GivenOperation, made: list[Tensor]) -> list[Domain] | None:
    """Bags of embeddings: examples stay apart if each is one bag of T ids, so that bags begin at 0, T, 2T, ..."""
    ids, offsets, weights = given.value("indices"), given.value("offsets"), given.value("per_sample_weights")
    domain = given.of(ids)
    if (
        not isinstance(given.domains[0], Same)
        or not isinstance(domain, ExampleRows)
        or given.value("include_last_offset")
        or given.value("scale_grad_by_freq")
    ):
        return None
    if ids.shape != (given.count * domain.after,) or not _is_counted(given, offsets, domain.after):
        return None
    if weights is not None and given.of(weights) != domain:
        return None
    return [ExampleRows(0, 1), *[MixedExamples("inside of a bag of embeddings")] * (len(made) - 1)]


def _layer_normed(given: GivenOperation, made: list[Tensor]) -> Domain | None:
    x, domain = given.first
    if not isinstance(domain, ExampleRows) or any(isinstance(each, ExampleRows) for each in given.domains[1:]):
        return None
    return None if domain.axis >= x.dim() - len(given.value("normalized_shape")) else domain


def _batch_normed(given: GivenOperation, made: list[Tensor]) -> Domain | list[Domain] | None:
    """Batch normalisation: statistics in training are sums over all axes except the second. So examples stay apart in
    training only if they lie along the second axis, as in an instance norm.
    """
    domain = given.domains[0]
    if not isinstance(domain, ExampleRows) or not all(isinstance(each, Same) for each in given.domains[1:]):
        return None
    if given.value("training") and domain.axis != 1:
        return None
    if domain.axis == 1 and any(domain.after % each.periods[0] for each in given.domains[1:] if isinstance(each, Same)):
        return None
    return [domain, *[MixedExamples("inside of batch norm")] * (len(made) - 1)]


def _one_loss_each(given: GivenOperation, made: list[Tensor]) -> Domain | list[Domain] | None:
    """Losses without a reduction: examples stay apart if outputs and targets have them at the same places, and not
    along the second axis of the outputs, where the classes are.
    """
    domain = given.domains[0]
    if given.value("reduction") != 0 or domain != given.domains[1] or not isinstance(domain, ExampleRows):
        return None
    return (
        None
        if domain.axis == 1
        else [given.domains[0], *[MixedExamples("a weight of the whole batch")] * (len(made) - 1)]
    )


def _gathered(given: GivenOperation, made: list[Tensor]) -> Domain | None:
    """`gather` and `scatter`: an index picks entries along one axis. Examples stay apart if they lie along another
    axis, in all tensors alike.
    """
    rows = {each for each in given.domains if isinstance(each, ExampleRows)}
    if len(rows) != 1 or given.tensors[0].dim() != made[0].dim():
        return None
    here = next(iter(rows))
    # If an index has fewer entries along the examples, the first examples would be picked for all.
    if any(
        len(each.shape) != made[0].dim() or each.shape[here.axis] != made[0].shape[here.axis] for each in given.tensors
    ):
        return None
    if any(isinstance(each, Same) and shape and here.after % each.periods[here.axis] for shape, each in _parts(given)):
        return None
    return None if given.value("dim") % made[0].dim() == here.axis else here


def _picked(given: GivenOperation, made: list[Tensor]) -> Domain | None:
    """`index_select`: the same entries along one axis are picked for every example. Examples stay apart if they lie
    along another axis, and the indices have no data.
    """
    x, domain = given.first
    if not isinstance(domain, ExampleRows) or not isinstance(given.domains[1], Same):
        return None
    return None if given.value("dim") % x.dim() == domain.axis else domain


def _recurrent(given: GivenOperation, made: list[Tensor]) -> Domain | list[Domain] | None:
    """Recurrent layers: examples stay apart if the sequences have them along the axis of the batch. Each initial state
    must have them along its last axis but one, or be equal for all examples.
    """
    x, domain = given.first
    # On a CPU the first axis has the places here, even if the layer has batch_first=True.
    in_front = given.name == "aten::_cudnn_rnn" and given.value("batch_first")
    if domain != ExampleRows(0 if in_front else 1, 1) or given.value("batch_sizes") or x.dim() != 3:
        return None
    begun = [given.value("hx_", "hx"), given.value("cx_", "cx")]
    for tensor, each in zip(given.tensors[1:], given.domains[1:], strict=True):
        at = tensor.dim() - 2
        if any(tensor is one for one in begun) and at >= 0:
            if each != ExampleRows(at, 1) and (not isinstance(each, Same) or each.periods[at] != 1):
                return None
        elif not isinstance(each, Same):  # weights
            return None
    states: list[Domain] = [ExampleRows(max(each.dim() - 2, 0), 1) for each in made[1:3]]
    inside: list[Domain] = [MixedExamples("inside of a recurrent layer")] * (len(made) - 3)
    return [domain, *states, *inside]


def _trilinear(given: GivenOperation, made: list[Tensor]) -> Domain | None:
    """`_trilinear`, a product of three tensors with inserted axes: examples stay apart unless the sum runs over their
    axis.
    """
    parts: list[Part] = []
    for place, (shape, domain) in enumerate(_parts(given), 1):
        for at in given.value(f"expand{place}"):
            shape, domain = (*shape[:at], 1, *shape[at:]), _inserted(domain, at)
        parts.append((shape, domain))
    found = _together(parts, len(parts[0][0]))
    return None if found is None else _without(found, set(given.value("sumdim")), keep=False)


def _padded(given: GivenOperation, made: list[Tensor]) -> Domain | None:
    """Padding: examples stay apart if nothing is padded along their axis. (Pads begin with the last axis.)"""
    (x, domain), pad = given.first, given.value("pad")
    if isinstance(domain, ExampleRows):
        behind = 2 * (x.dim() - 1 - domain.axis)  # the pads of the examples' axis, where any pad would move examples
        return None if any(pad[behind : behind + 2]) else domain
    return Same.varying(made[0])


def _within_matrices(given: GivenOperation, made: list[Tensor]) -> Domain | None:
    """`tril` and `triu`: examples stay apart if they lie before the last two axes."""
    x, domain = given.first
    return domain if isinstance(domain, ExampleRows) and domain.axis < x.dim() - 2 else None


def _is_counted(given: GivenOperation, ids: Tensor, step: int) -> bool:
    """Whether `ids` are 0, step, 2·step, ...: they must come from `arange`, and their values must be these."""
    domain = given.of(ids)
    if not isinstance(domain, Same) or domain.step != step or ids.shape != (given.count,):
        return False
    return bool(torch.equal(ids, torch.arange(given.count, dtype=ids.dtype, device=ids.device) * step))


def _indexed(given: GivenOperation, made: list[Tensor]) -> Domain | None:
    """x[:, ids] picks the same places of every example; x[arange(B), ids] picks places by the example's own ids."""
    domain, asked = given.domains[0], given.value("indices")
    if domain == ExampleRows(0, 1) and given.tensors[0].shape[0] == given.count and asked:
        first, *rest = asked
        own = all(isinstance(each, Tensor) and each.dim() == 1 and given.of(each) == ExampleRows(0, 1) for each in rest)
        if own and isinstance(first, Tensor) and _is_counted(given, first, 1):
            return domain
    if not isinstance(domain, ExampleRows) or domain.axis != 0 or not asked or asked[0] is not None:
        return None
    if any(isinstance(each, ExampleRows) for each in given.domains[1:]):
        return None
    used = [place for place, each in enumerate(asked) if each is not None]
    return domain if used == list(range(used[0], used[-1] + 1)) else None


def _each(rule: Rule, *names: str) -> dict[str, Rule]:
    return dict.fromkeys(names, rule)


RULES: dict[str, Rule] = {
    **_each(_alike, "clone", "detach", "alias", "_to_copy", "lift_fresh"),
    **_each(_dropped, "native_dropout", "_fused_dropout"),
    **_each(_pointwise, "bernoulli", "uniform", "normal", "exponential", "random", "fill", "zero", "_prelu_kernel"),
    **_each(_pointwise, "masked_fill", "hardswish", "floor_divide", "log_sigmoid_forward", "binary_cross_entropy"),
    **_each(
        _pointwise, "mse_loss", "smooth_l1_loss", "huber_loss", "soft_margin_loss", "binary_cross_entropy_with_logits"
    ),
    "copy": _copied,
    **_each(_viewed, "view", "_unsafe_view", "reshape", "_reshape_alias", "_reshape_copy"),
    **_each(_permuted, "permute", "transpose", "t", "numpy_T", "swapaxes"),
    "unsqueeze": _unsqueezed,
    "squeeze": _squeezed,
    **_each(_spread, "expand", "repeat"),
    **_each(_sliced, "slice", "narrow", "split", "split_with_sizes", "unsafe_split", "unsafe_split_with_sizes"),
    **_each(_selected, "select", "unbind"),
    **_each(_joined, "cat", "stack"),
    **_each(_reduced, "sum", "mean", "amax", "amin", "max", "min", "argmax", "argmin", "var", "std", "var_mean"),
    **_each(_reduced, "std_mean", "linalg_vector_norm", "norm", "logsumexp", "prod", "any", "all", "median", "nansum"),
    **_each(_along, "_softmax", "_log_softmax", "_safe_softmax", "cumsum", "cumprod", "logcumsumexp", "sort", "topk"),
    **_each(_along, "flip", "glu", "cummax", "cummin", "argsort"),
    **_each(_product, "mm", "addmm", "bmm", "baddbmm", "mv"),
    **_each(_convolved, "convolution", "_convolution", "mkldnn_convolution", "cudnn_convolution"),
    **_each(_convolved, "native_group_norm", "upsample_nearest1d", "upsample_nearest2d", "upsample_bilinear2d"),
    **_each(_convolved, "max_pool2d_with_indices", "max_pool3d_with_indices", "avg_pool1d", "avg_pool2d", "avg_pool3d"),
    **_each(_convolved, "_adaptive_avg_pool2d", "_adaptive_avg_pool3d", "adaptive_max_pool2d", "mkldnn_max_pool2d"),
    **_each(
        _convolved, "pixel_shuffle", "pixel_unshuffle", "im2col", "col2im", "reflection_pad2d", "replication_pad2d"
    ),
    **_each(_attended, "_scaled_dot_product_flash_attention_for_cpu", "_scaled_dot_product_flash_attention"),
    **_each(_attended, "_scaled_dot_product_efficient_attention", "_scaled_dot_product_cudnn_attention"),
    "embedding": _looked_up,
    **_each(_bagged, "_embedding_bag", "_embedding_bag_forward_only"),
    **_each(_layer_normed, "native_layer_norm", "_fused_rms_norm"),
    **_each(_batch_normed, "native_batch_norm", "_native_batch_norm_legit", "cudnn_batch_norm"),
    **_each(_one_loss_each, "nll_loss_forward", "nll_loss2d_forward"),
    **_each(_gathered, "gather", "scatter", "scatter_add"),
    "index_select": _picked,
    "index": _indexed,
    **_each(_recurrent, "mkldnn_rnn_layer", "_cudnn_rnn"),
    "_trilinear": _trilinear,
    "constant_pad_nd": _padded,
    **_each(_within_matrices, "tril", "triu"),
}
"""Name of an operation -> rule. An in-place operation has the rule of its counterpart without the underscore."""

ELEMENTWISE = frozenset(
    {_alike, _pointwise, _dropped, _copied, _viewed, _permuted, _unsqueezed, _squeezed, _spread, _sliced, _looked_up}
)
"""Rules of operations that move values or work on each alone, so that no value depends on a length."""


def reduced_axes(given: GivenOperation) -> list[frozenset[int]] | None:
    """The axes of each tensor along which an operation combines values; None if that is not known."""
    nowhere: list[frozenset[int]] = [frozenset()] * len(given.tensors)
    name = given.name.removeprefix("aten::")
    rule = RULES.get(name) or RULES.get(name.removesuffix("_"))
    if rule in ELEMENTWISE or (rule is None and _is_pointwise(given.func)) or _is_constant(name):
        return nowhere
    first = given.tensors[0] if given.tensors else None
    if first is None:
        return nowhere
    if rule is _selected:
        return [frozenset({given.value("dim") % first.dim()}), *nowhere[1:]]
    if rule in (_reduced, _along):
        return [frozenset(_dims(given, first)), *nowhere[1:]]
    if rule is _joined and name == "cat":
        return [frozenset({(given.value("dim") or 0) % max(each.dim(), 1)}) for each in given.tensors]
    if rule is _product:
        left, right = given.tensors[-2:]
        return [*nowhere[2:], frozenset({left.dim() - 1}), frozenset({max(right.dim() - 2, 0)})]
    return None
