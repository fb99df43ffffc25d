"""What single operations and small modules allocate, keep and free: the tables of tests/unit/measured/.

    PYTHONPATH=EMULATION python3 tests/tools/measured/GROUP.py >tests/unit/measured/GROUP.csv

EMULATION is a folder with fakecuda.py, which counts the storages of a PyTorch step as CUDA would make them, on a
machine without a GPU (data/ and README.md say how the same emulation made the measured runs).  A development tool:
nothing of the build or the tests runs it; the tables name the versions they were made with.

A case is a function body(e, x) that runs one operation on a tensor x of [b, s, width] (or [b, c, h, w]) and whatever it
makes itself: e.x() further inputs, e.p() parameters, e.const() inputs that lie on the card before the step.  The C side
(tests/unit/tape_case.h) has a case of the same name written in oomplan's operations.  Both are run forward (twice the
result, summed, is the loss; a checkpointed one through silu first, so that there is something to keep), backward, and
again with the gradients there, and compared to the byte:

    eval_peak   without gradients, in evaluation mode
    fwd_peak    of the forward pass
    kept        at its end: what backward needs, and the loss
    bwd_peak    of the backward pass
    acc_peak    of a second step's backward pass, on top of gradients that exist (not counted)
    grads       left at the end
"""
import gc
import sys
import warnings

import torch
import torch.nn.functional as F
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils.checkpoint import checkpoint

import fakecuda

fakecuda.install_bnb_stub()                         # before anything imports PEFT, which asks once for bitsandbytes
warnings.filterwarnings("ignore")
WEIGHTS = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16, "amp-bf16": torch.float32,
           "amp-fp16": torch.float32, "bf16-amp": torch.bfloat16}
AUTOCAST = {"amp-bf16": torch.bfloat16, "amp-fp16": torch.float16, "bf16-amp": torch.bfloat16}
CASES = []


class Source(torch.autograd.Function):
    """A tensor that needs a gradient nobody keeps: what an operation gets from the one before it."""

    @staticmethod
    def forward(ctx, anchor, shape, dtype):
        return torch.empty(shape, dtype=dtype)

    @staticmethod
    def backward(ctx, g):
        return None, None, None


def sdpa(query, key, value, attn_mask=None, dropout_p=0.0, is_causal=False, scale=None, enable_gqa=False):
    """fakecuda.cuda_sdpa where there is a mask, with the mask's lifetimes of aten/src/ATen/native/transformers/attention.cpp:
    a boolean one becomes additive in the query's type for every kernel, and neither it nor an unpadded one is held on."""
    aten = torch.ops.aten
    d, dv = query.shape[-1], value.shape[-1]
    align = 8 if query.dtype in (torch.float16, torch.bfloat16) else 4
    fits = query.shape[-3] == key.shape[-3] == value.shape[-3] and d % align == 0 and dv % align == 0
    if attn_mask is None:
        return plain_sdpa(query, key, value, None, dropout_p, is_causal, scale, enable_gqa)
    if attn_mask.dtype == torch.bool:
        additive = torch.zeros(attn_mask.shape, dtype=query.dtype)
        attn_mask = additive.masked_fill_(attn_mask.logical_not(), float("-inf"))
        del additive
    if not fits:
        return aten._scaled_dot_product_attention_math.default(query, key, value, attn_mask, dropout_p, is_causal, None,
                                                               scale=scale, enable_gqa=enable_gqa)[0]
    n = attn_mask.shape[-1]
    if n % 16:
        attn_mask = F.pad(attn_mask, (0, 16 - n % 16))[..., :n]
    attn_mask = attn_mask.expand(query.shape[0], query.shape[1], query.shape[2], key.shape[2])
    need = torch.is_grad_enabled() and (query.requires_grad or key.requires_grad or value.requires_grad)
    return aten._scaled_dot_product_efficient_attention.default(query, key, value, attn_mask, need, dropout_p, is_causal,
                                                                scale=scale)[0]


plain_sdpa, fakecuda.cuda_sdpa = fakecuda.cuda_sdpa, sdpa


class Tracker(fakecuda.Tracker):
    """What the emulation gets wrong about single derivatives, read in PyTorch 2.14's sources."""

    # torch/csrc/autograd/FunctionsManual.cpp: zeros(...).scatter_(...) and the like, out of place for tensor subclasses
    # (isTensorSubclassLike), of which FakeTensor is one
    IN_PLACE = {"aten::scatter", "aten::scatter_add", "aten::index_add", "aten::index_put", "aten::_unsafe_index_put"}
    first, nth = None, 0

    def in_place(self, name, args):
        # and the gradient of maximum: masked_fill_inplace_if_safe(at::where(...), ...) (tools/autograd/derivatives.yaml)
        if not self.in_bwd:
            return False
        made_by = getattr(self.buf_of(args[0]), "op", "") if name == "aten::masked_fill" else ""
        return name in self.IN_PLACE or made_by == "aten::where"

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        name = func._schema.name
        self.first = args[0] if self.in_place(name, args) else None
        self.nth = 0
        # torch/csrc/autograd/input_buffer.cpp, can_accumulate_inplace: not when somebody else holds the storage
        self.inplace_accumulation = not (name == "aten::add" and isinstance(args[1], torch.Tensor)
                                         and args[0].untyped_storage()._cdata == args[1].untyped_storage()._cdata)
        return super().__torch_dispatch__(func, types, args, kwargs)

    def add(self, t, cat=None, op="", reuse=None, raw=None):
        # aten/src/ATen/native/cuda/ActivationLogSigmoidKernel.cu: the second result is for the CPU alone
        if op == "aten::log_sigmoid_forward" and self.nth == 1:
            return None
        self.nth += 1
        if reuse is None and self.first is not None:
            old = self.buf_of(self.first)
            reuse = old.id if old is not None else None
        return super().add(t, cat, op, reuse, raw)

    def _on_death(self, key, bid):
        if self.pending is not None and bid == self.pending[1] and self.bufs[bid].size != self.pending[0].size:
            self._flush()                           # no block to take over: the sum is made while its terms are there
        super()._on_death(key, bid)


# aten/src/ATen/native/ReduceOps.cpp, logsumexp_out_impl: the maxima, and the differences from them, in whose place the
# exponentials are made
fakecuda.PHANTOMS["aten::logsumexp"] = lambda args, kwargs, outs: [
    t.numel() * t.element_size() for t in (outs, args[0])]


class Env:
    """What a case runs with."""

    def __init__(self, knobs, trains, b, s):
        self.knobs, self.trains, self.b, self.s = knobs, trains, b, s
        precision = knobs.get("precision", "fp32")
        self.dt, self.half = WEIGHTS[precision], AUTOCAST.get(precision)
        if knobs.get("qlora"):                      # PEFT's prepare_model_for_kbit_training casts what is not 4-bit
            self.dt = torch.float32 if knobs.get("kbit-prepare") else torch.bfloat16
        self.made, self.at, self.train = [], 0, True
        self.anchor = torch.empty(1, requires_grad=True)

    def _made(self, make):
        if self.at == len(self.made):
            self.made.append(make())
        self.at += 1
        return self.made[self.at - 1]

    def p(self, *shape, dtype=None, frozen=False):
        """The next parameter."""
        return self._made(lambda: torch.nn.Parameter(torch.empty(shape, dtype=dtype or self.dt),
                                                     requires_grad=self.trains != "inputs" and not frozen))

    def module(self, make):
        """A module, its parameters in the model's type."""
        def new():
            m = make()
            for p in m.parameters():
                p.requires_grad_(self.trains != "inputs" and p.requires_grad)
            return m.to(self.dt)
        m = self._made(new)
        return m.train(self.train)

    def peft(self, make):
        """An adapted module, as it was made."""
        return self._made(make).train(self.train)

    def const(self, make):
        """A tensor that is there before the step and is not counted."""
        return self._made(make)

    def x(self, *shape, dtype=None):
        """An input of this shape (one number: [b, s, width], one tuple: [b, *tuple]), in the model's type."""
        if len(shape) == 1:
            shape = (self.b, self.s, shape[0]) if isinstance(shape[0], int) else (self.b, *shape[0])
        if self.trains == "weights" or (dtype is not None and not dtype.is_floating_point):
            return torch.empty(shape, dtype=dtype or self.dt)
        return Source.apply(self.anchor, shape, dtype or self.dt)


def case(width=0, plans=(), sizes=((2, 48),), trains=("all", "inputs", "weights"), precisions=("fp32", "bf16", "amp-bf16"),
         ckpt=True, name=None):
    def add(body):
        CASES.append((name or body.__name__, body, width, list(plans) or [{}], sizes, trains, precisions, ckpt))
        return body
    return add


def settings(plans, sizes, trains, precisions, ckpt):
    """Every precision trained in full; the rest under autocast and in 16 bit."""
    for plan in plans:
        for b, s in sizes:
            for p in precisions:
                yield dict(plan, precision=p), trains[0], b, s
        b, s = sizes[0]
        for t in trains[1:]:
            yield dict(plan, precision=precisions[-1]), t, b, s
        if ckpt:
            yield {**plan, "precision": precisions[min(1, len(precisions) - 1)], "grad-ckpt": "full"}, trains[0], b, s
            yield {**plan, "precision": precisions[-1], "grad-ckpt": "full"}, trains[0], b, s


def loss_of(e, body, width):
    e.at = 0
    if not width:
        return (body(e) * 2.0).sum()
    if e.knobs.get("grad-ckpt") == "full" and torch.is_grad_enabled():
        def again(x):
            e.at = 0
            return F.silu(body(e, x))
        return (checkpoint(again, e.x(width), use_reentrant=False) * 2.0).sum()
    return (body(e, e.x(width)) * 2.0).sum()


def step(e, body, width):
    if e.half is None:
        return loss_of(e, body, width)
    with torch.autocast("cpu", dtype=e.half):
        return loss_of(e, body, width)


def measure(body, width, knobs, trains, b, s):
    """The six numbers, or None when nothing is trained."""
    with FakeTensorMode(allow_non_fake_inputs=True):
        e = Env(knobs, trains, b, s)
        with Tracker(True), torch.no_grad():
            step(e, body, width)                    # makes parameters and constants
        gc.collect()
        tr = Tracker(True)
        fakecuda._tracker_slot[0] = tr
        for made in e.made:
            for t in [made] if isinstance(made, torch.Tensor) else [*made.parameters(), *made.buffers()]:
                tr.add(t)
        start = tr.cur
        with tr:
            e.train = False
            with torch.no_grad():
                loss = step(e, body, width)
            tr._flush()
            out = [tr.peak - start]
            del loss
            e.train = True
            for again in (False, True):
                gc.collect()
                tr._flush()
                base = tr.cur
                tr.reset_peak()
                loss = step(e, body, width)
                tr._flush()
                if not loss.requires_grad:
                    return None
                if not again:
                    out += [tr.peak - base, tr.cur - base]
                tr.reset_peak()
                tr.in_bwd = True
                loss.backward()
                del loss
                tr._flush()
                tr.in_bwd = False
                out.append(tr.peak - base)
            gc.collect()
            tr._flush()
            out.append(tr.cur - start)
        fakecuda._tracker_slot[0] = None
        tr.refs.clear()
        return out


def main():
    fakecuda.install()
    torch.nn.Module._apply = fakecuda.module_apply  # FakeTensors cannot be swapped
    import transformers
    only = set(sys.argv[1:])
    print(f"# origin: PyTorch {torch.__version__}, transformers {transformers.__version__}, storages counted as CUDA makes them "
          "(tests/tools/measured/harness.py)")
    print("case,plan,trains,b,s,eval_peak,fwd_peak,kept,bwd_peak,acc_peak,grads")
    gc.collect()
    gc.freeze()                                     # makes the collections cheap
    gc.disable()
    for name, body, width, plans, sizes, trains, precisions, ckpt in CASES:
        if only and name not in only:
            continue
        for knobs, tr, b, s in settings(plans, sizes, trains, precisions, ckpt and width):
            out = measure(body, width, knobs, tr, b, s)
            if out is not None:
                plan = ";".join(f"{k}={v}" for k, v in knobs.items())
                print(f"{name},{plan},{tr},{b},{s}," + ",".join(map(str, out)), flush=True)
