#!/usr/bin/env python3
"""Memory and time of real training steps on one CUDA device, row by row.

    measure_steps.py ORACLE SPECS.jsonl OUT.jsonl [--seconds N] [--together K]

ORACLE is the folder that holds measure_memory.py: models, batches, losses and optimizers are made there.  A line of
SPECS is what that program takes, and beside it

  engine   none, ddp, fsdp1, fsdp2, zero1, zero2, zero3
  ranks    how many ranks the run believes in; this process is rank 0 of them, and torch's fake process group stands
           for the others, so that all buffers are made and no byte is sent (FSDP, ZeRO)
  zero     what stands in zero_optimization beside the stage
  orig     FSDP1's use_orig_params
  prefetch, gather_limit   FSDP1's backward_prefetch (pre, post, none) and limit_all_gathers
  sharding full, or grad_op: parameters stay gathered between forward and backward
  reduce   fp32: gradients are reduced in fp32; else in the type of the computation
  offload  FSDP's CPU offload
  qstorage 4-bit codes are stored as bf16, which FSDP can divide
  compile  the model is compiled
  liger    Liger's kernels are put into the model
  expandable  torch's allocator uses expandable segments
  trace    what the allocator does in the two steps is written beside OUT
  timed    steps to time after the two whose memory is read
  caps     the card is made smaller from try to try until the two steps die: between what ran (cap_fits_mib) and what died
           (cap_dies_mib) lie at most so many thousandths.  Beside other rows a card can be full of these: `tries` has the messages

DDP runs with the one rank there is.  Every row runs in a process of its own, forked from one that has imported torch but
not touched the device.  A line of OUT is the spec with what was read: bytes by torch's allocator at each phase's peak and end, bytes reserved, bytes of
the whole device (the driver's count less what it counted before), and milliseconds of a step.
"""
import contextlib
import copy
import gc
import json
import os
import sys
import time
import traceback

ORACLE, SPECS, OUT = sys.argv[1:4]
SECONDS = float(sys.argv[sys.argv.index("--seconds") + 1]) if "--seconds" in sys.argv else 1e9
TOGETHER = int(sys.argv[sys.argv.index("--together") + 1]) if "--together" in sys.argv else 1
sys.path.insert(0, ORACLE)
if "cuda" not in sys.argv:
    sys.argv.append("cuda")                              # measure_memory.py asks for it when it is imported
os.environ.setdefault("PYTORCH_NVML_BASED_CUDA_CHECK", "1")
import torch                                             # noqa: E402
import transformers                                      # noqa: E402
import transformers.modeling_utils                       # noqa: E402,F401
import measure_memory as mm                              # noqa: E402
if "--no-peft" not in sys.argv:
    import peft                                          # noqa: E402,F401
    import peft.tuners.lora                              # noqa: E402,F401
    if torch.cuda.is_initialized():                      # a fork could not use the device: import it row by row
        os.execv(sys.executable, [sys.executable] + sys.argv + ["--no-peft"])

DEV = "cpu" if os.environ.get("MEASURE_STUB") else "cuda"
MORE = dict(engine="none", ranks=1, orig=True, compile=False, liger=False, timed=0, wrap="layers", bucket_view=False,
            expandable=False, trace=False, prefetch="pre", sharding="full", offload=False, reduce="amp",
            qstorage=None, gather_limit=True, caps=0, cap=0)


def used():
    """Bytes of the device that are taken, by every process, as its driver counts them."""
    import pynvml
    pynvml.nvmlInit()
    return pynvml.nvmlDeviceGetMemoryInfo(pynvml.nvmlDeviceGetHandleByIndex(0)).used


class Backend(mm.CudaBackend):
    def place(self, model):
        """Finite values; of no parameter may a reference stay, or what an engine divides remains whole."""
        with torch.no_grad():
            for p in model.parameters():
                if p.is_floating_point():
                    p.normal_(0, 0.02)
            del p
        return model

    @staticmethod
    def _quant(bnb, lin, spec):                          # as measure_memory.py's, but without the way over the host
        new = bnb.nn.Linear4bit(lin.in_features, lin.out_features, bias=lin.bias is not None,
                                compute_dtype=torch.bfloat16, compress_statistics=spec["double_quant"],
                                quant_type="nf4", device="meta",
                                **(dict(quant_storage=torch.bfloat16) if spec["qstorage"] else {}))
        new.weight = bnb.nn.Params4bit(torch.randn_like(lin.weight, device="cuda").mul_(0.02), requires_grad=False,
                                       quant_type="nf4", compress_statistics=spec["double_quant"],
                                               **(dict(quant_storage=torch.bfloat16) if spec["qstorage"] else {})).to("cuda")
        new.quant_state = new.weight.quant_state         # what FSDP makes of the weight has none: bitsandbytes looks here
        new.bias = lin.bias
        return new


if DEV == "cpu":                                         # a machine without a device: the flow can still be tried
    Backend.device = Backend.autocast_device = "cpu"
    for name in ("synchronize", "reset_peak_memory_stats", "empty_cache"):
        setattr(torch.cuda, name, lambda *a: None)
    for name in ("memory_allocated", "max_memory_allocated", "max_memory_reserved"):
        setattr(torch.cuda, name, lambda *a: 0)
    Backend.build_context = lambda self: contextlib.nullcontext()


def block_classes(model):
    names = set(getattr(model, "_no_split_modules", None) or [])
    return {type(m) for m in model.modules() if type(m).__name__ in names}


def wrap(spec, model):
    """The model as the engine runs it: what accelerate does for FSDP and DDP, in as few words."""
    e = spec["engine"]
    if e == "none":
        return model
    import torch.distributed as dist
    from torch.testing._internal.distributed.fake_pg import FakeStore
    amp = mm.amp_dtype(spec)
    if e == "ddp":                                       # the reducer waits for futures that the fake group does not give
        dist.init_process_group("nccl" if DEV == "cuda" else "gloo", store=dist.HashStore(), rank=0, world_size=1)
        return torch.nn.parallel.DistributedDataParallel(
            model, device_ids=[0] if DEV == "cuda" else None, gradient_as_bucket_view=spec["bucket_view"])
    dist.init_process_group("fake", store=FakeStore(), rank=0, world_size=spec["ranks"])
    blocks = block_classes(model)
    if e == "fsdp1":
        from torch.distributed.fsdp import FullyShardedDataParallel as FSDP, MixedPrecision
        from torch.distributed.fsdp.wrap import transformer_auto_wrap_policy
        import functools
        policy = functools.partial(transformer_auto_wrap_policy, transformer_layer_cls=blocks)
        if spec["wrap"] == "peft":
            from peft.utils.other import fsdp_auto_wrap_policy
            os.environ["FSDP_TRANSFORMER_CLS_TO_WRAP"] = ",".join(c.__name__ for c in blocks)
            policy = fsdp_auto_wrap_policy(model)
        from torch.distributed.fsdp import BackwardPrefetch, CPUOffload, ShardingStrategy
        red = torch.float32 if spec["reduce"] == "fp32" else amp
        mp = MixedPrecision(param_dtype=amp, reduce_dtype=red, buffer_dtype=amp) if amp else None
        model = FSDP(model, auto_wrap_policy=policy, mixed_precision=mp, device_id=0 if DEV == "cuda" else None,
                     use_orig_params=spec["orig"], limit_all_gathers=spec["gather_limit"],
                     backward_prefetch=dict(pre=BackwardPrefetch.BACKWARD_PRE, post=BackwardPrefetch.BACKWARD_POST,
                                            none=None)[spec["prefetch"]],
                     sharding_strategy=ShardingStrategy.FULL_SHARD if spec["sharding"] == "full"
                     else ShardingStrategy.SHARD_GRAD_OP,
                     cpu_offload=CPUOffload(offload_params=True) if spec["offload"] else None)
        if amp:                                          # accelerate: flat parameters that train are kept in fp32
            for m in FSDP.fsdp_modules(model):
                if m._has_params:
                    p = m._flat_param
                    if p.dtype != torch.float32 and p.requires_grad:
                        p.data = p.data.to(torch.float32)
                        m._handle._orig_param_dtype = torch.float32
        return model
    if e == "fsdp2":
        from torch.distributed.fsdp import fully_shard, MixedPrecisionPolicy
        from torch.distributed.device_mesh import init_device_mesh
        mesh = init_device_mesh(DEV, (spec["ranks"],))
        red = torch.float32 if spec["reduce"] == "fp32" else amp
        mp = MixedPrecisionPolicy(param_dtype=amp, reduce_dtype=red) if amp else MixedPrecisionPolicy()
        more = dict(reshard_after_forward=False) if spec["sharding"] == "grad_op" else {}
        if spec["offload"]:
            from torch.distributed.fsdp import CPUOffloadPolicy
            more["offload_policy"] = CPUOffloadPolicy()
        if amp:
            for p in model.parameters():
                if p.requires_grad and p.dtype != torch.float32:
                    p.data = p.data.float()
            del p
        for m in list(model.modules())[::-1]:
            if type(m) in blocks:
                fully_shard(m, mesh=mesh, mp_policy=mp, **more)
        fully_shard(model, mesh=mesh, mp_policy=mp, **more)
        return model
    raise ValueError(e)


def deepspeed(spec, model):
    os.environ.update(RANK="0", WORLD_SIZE=str(spec["ranks"]), LOCAL_RANK="0", MASTER_ADDR="127.0.0.1",
                      MASTER_PORT=str(20000 + os.getpid() % 20000), DS_ACCELERATOR=DEV)
    import torch.distributed as dist
    from torch.testing._internal.distributed.fake_pg import FakeStore
    dist.init_process_group("fake", store=FakeStore(), rank=0, world_size=spec["ranks"])
    import deepspeed as ds
    ds.init_distributed(dist_backend="fake", dist_init_required=False)
    amp = spec["precision"] in ("amp-bf16", "bf16-amp", "bf16")
    conf = dict(train_micro_batch_size_per_gpu=spec["micro_batch"], gradient_accumulation_steps=1,
                bf16=dict(enabled=amp), zero_optimization=dict(stage=int(spec["engine"][-1])),
                zero_allow_untested_optimizer=True, zero_force_ds_cpu_optimizer=False,
                gradient_clipping=1.0)
    conf["zero_optimization"].update(spec.get("zero") or {})
    opt = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=1e-4,
                            fused=spec["optimizer"] == "adamw-fused")
    engine, opt, _, _ = ds.initialize(model=model, optimizer=opt, config=conf)
    return engine, opt


def run(spec):
    be = Backend()
    row = dict(spec)
    t0 = time.time()
    if DEV == "cuda":
        base = spec["base"]
        if spec["expandable"]:
            torch._C._accelerator_setAllocatorSettings("expandable_segments:True")
        torch.zeros(1, device="cuda")
        torch.cuda.synchronize()
        row["context"] = used() - base - torch.cuda.memory_reserved()
    cfg = mm.load_config(spec, ORACLE)
    with be.build_context():
        model = mm.build_model(spec, cfg, be)
    if spec["liger"]:
        from liger_kernel.transformers import _apply_liger_kernel_to_instance
        _apply_liger_kernel_to_instance(model=model)
    model = be.place(model)
    row.update(mm.model_stats(model))
    zero = spec["engine"].startswith("zero")
    if zero:
        model, opt = deepspeed(spec, model)
    else:
        model = wrap(spec, model)
        if spec["compile"]:
            model = torch.compile(model)
        opt = mm.make_optimizer(spec, model, be)
    batch = mm.make_batch(spec, cfg, be)
    gc.collect()
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()
    row["after_load"] = torch.cuda.memory_allocated()
    row["reserved_load"] = torch.cuda.max_memory_reserved()
    if spec["cap"]:                                      # a smaller card: no more may be reserved
        torch.cuda.set_per_process_memory_fraction(spec["cap"] / torch.cuda.get_device_properties(0).total_memory)
    gc.disable()
    if spec["trace"]:
        row["segments"] = [[g["address"], g["total_size"], g["stream"], [[b["size"], b["state"]] for b in g["blocks"]]]
                           for g in torch.cuda.memory._snapshot()["segments"]]
        torch.cuda.memory._record_memory_history(context=None, max_entries=1000000)

    def forward():
        with contextlib.nullcontext() if zero else mm.autocast_ctx(spec, be):
            return mm.compute_loss(spec, model, batch, be)

    def backward(loss):
        model.backward(loss) if zero else loss.backward()

    def finish():
        if zero:
            model.step()
        elif opt is not None:
            opt.step()
            opt.zero_grad(set_to_none=True)
        else:
            model.zero_grad(set_to_none=True)

    for step in (1, 2):
        for micro in range(spec["grad_accum"]):
            be.begin("f")
            loss = forward()
            r = be.end("f")
            row[f"fwd{step}_peak"] = max(row.get(f"fwd{step}_peak", 0), r["peak"])
            row[f"fwd{step}_end"] = r["now"]
            be.begin("b")
            backward(loss)
            del loss
            r = be.end("b")
            row[f"bwd{step}_peak"] = max(row.get(f"bwd{step}_peak", 0), r["peak"])
            row[f"bwd{step}_end"] = r["now"]
        be.begin("o")
        finish()
        row[f"opt{step}_peak"] = be.end("o")["peak"]
        gc.collect()
        row[f"opt{step}_end"] = be.now()
    row["overall_peak"] = max(row[p + str(s) + "_peak"] for p in ("fwd", "bwd", "opt") for s in (1, 2))
    row["reserved_peak"] = be.max_reserved
    if DEV == "cuda":
        row["device_used"] = used() - base
        st = torch.cuda.memory_stats()
        row["stats"] = {k: st[k] for k in ("allocated_bytes.all.peak", "requested_bytes.all.peak", "active_bytes.all.peak",
                                           "reserved_bytes.all.peak", "num_alloc_retries", "segment.all.current",
                                           "requested_bytes.all.current", "allocated_bytes.all.current")}
        if spec["trace"]:
            dump_trace(spec)
    if spec["timed"]:
        time_steps(spec, row, forward, backward, finish)
    row["torch"], row["transformers"] = torch.__version__, transformers.__version__
    row["seconds"] = round(time.time() - t0, 2)
    return row


def dump_trace(spec):
    """What the allocator did since the model was there: action, address, bytes and stream, one a line."""
    import gzip
    snap = torch.cuda.memory._snapshot()
    torch.cuda.memory._record_memory_history(enabled=None)
    with gzip.open(os.path.join(os.path.dirname(OUT), spec["id"] + ".trace.gz"), "wt") as f:
        for e in snap["device_traces"][0]:
            f.write(f"{e['action']},{e['addr']:x},{e['size']},{e['stream']}\n")


def time_steps(spec, row, forward, backward, finish):
    """Milliseconds of a step: by the clock over all timed steps, and of its three parts by events of the device."""
    def step():
        for _ in range(spec["grad_accum"]):
            loss = forward()
            backward(loss)
        finish()
    step()
    torch.cuda.synchronize()
    each = []
    t = time.perf_counter()
    for _ in range(spec["timed"]):
        t1 = time.perf_counter()
        step()
        torch.cuda.synchronize()
        each.append((time.perf_counter() - t1) * 1e3)
    each.sort()
    row["step_ms"] = round(each[len(each) // 2], 3)
    row["step_ms_all"] = [round(x, 2) for x in each]
    t = time.perf_counter()
    for _ in range(spec["timed"]):
        step()
    torch.cuda.synchronize()
    row["step_ms_free"] = round((time.perf_counter() - t) * 1e3 / spec["timed"], 3)
    if DEV == "cuda":
        ev = [torch.cuda.Event(enable_timing=True) for _ in range(4)]
        ev[0].record()
        loss = forward()
        ev[1].record()
        backward(loss)
        ev[2].record()
        finish()
        ev[3].record()
        torch.cuda.synchronize()
        row["fwd_ms"], row["bwd_ms"], row["opt_ms"] = (round(a.elapsed_time(b), 3) for a, b in zip(ev, ev[1:]))


def child(spec, path):
    try:
        row = run(spec)
    except BaseException as e:                           # a row that fails says so and loses nothing else
        row = dict(spec, error=f"{type(e).__name__}: {str(e)[:300]}", where=traceback.format_exc()[-1500:])
    row.pop("base", None)
    with open(path, "a") as f:
        f.write(json.dumps(row) + "\n")
    os._exit(0)


def try_cap(spec, path, cap):
    """What a try says in a process of its own, on a card of so many bytes; 0: all that there is."""
    own = f"{path}.{spec['id']}"
    pid = os.fork()
    if pid == 0:
        child(dict(spec, cap=cap), own)
    os.waitpid(pid, 0)
    with open(own) as f:
        row = json.loads(f.read())
    os.unlink(own)
    return row


def find_cap(spec, path):
    """By bisection between what is allocated and what is reserved on an endless card."""
    mib = 1 << 20
    row = try_cap(spec, path, 0)
    if "error" not in row:
        low, high, tries = row["overall_peak"] // mib * 95 // 100, -(-row["reserved_peak"] // mib), []
        while high - low > max(2, spec["caps"] * high // 1000) and len(tries) < 12:
            middle = (low + high) // 2
            r = try_cap(spec, path, middle * mib)
            ran = "error" not in r
            if not ran and "OutOfMemory" not in r["error"]:
                row["cap_error"] = r["error"]
                break
            tries.append([middle, ran, r["stats"]["num_alloc_retries"] if ran else r["error"][:160]])
            low, high = (low, middle) if ran else (middle, high)
        row.update(cap_fits_mib=high, cap_dies_mib=low, tries=tries)
    with open(path, "a") as f:
        f.write(json.dumps(row) + "\n")
    os._exit(0)


def main():
    start = time.time()
    specs = [json.loads(line) for line in open(SPECS) if line.strip()]
    base = used() if DEV == "cuda" else 0
    alive = {}
    for s in specs:
        spec = copy.deepcopy(mm.DEFAULTS)
        spec.update(MORE)
        spec.update(s)
        spec["base"] = base
        while len(alive) >= TOGETHER or (alive and time.time() - start > SECONDS):
            reap(alive)
        if time.time() - start > SECONDS:
            print("out of time before", spec["id"])
            break
        sys.stdout.flush()
        pid = os.fork()
        if pid == 0:
            (find_cap if spec["caps"] else child)(spec, OUT)
        alive[pid] = (spec["id"], time.time(), spec.get("limit", 100))
    while alive:
        reap(alive)


def reap(alive):
    pid, _ = os.waitpid(-1, os.WNOHANG)
    if pid:
        name, t, _ = alive.pop(pid)
        print(f"{time.time() - t:6.1f} s  {name}")
        return
    for pid, (name, t, limit) in alive.items():
        if time.time() - t > limit:
            print("too long:", name)
            os.kill(pid, 9)
    time.sleep(0.02)


main()
