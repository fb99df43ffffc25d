#!/usr/bin/env python3
"""Writes data/snapshots/*.pickle: small PyTorch memory snapshots of made-up runs.

A development tool: nothing of the build or the tests runs it.  No GPU and no PyTorch take part: the events are written here by
hand, in the layout of torch.cuda.memory._dump_snapshot (docs.pytorch.org, torch_cuda_memory), and a small caching allocator
(20 MiB segments, best fit, splits) places them.  Sizes are round so that every sum can be reckoned in one's head.

    python3 tests/tools/make_snapshot.py data/snapshots
"""
import pickle
import sys

MIB = 1 << 20


def frames(*where):
    """Innermost first, as PyTorch writes them."""
    return [{"filename": f, "line": line, "name": name} for f, line, name in where]


SITE = "/usr/lib/python3/site-packages/"
MAIN = ("/home/user/train.py", 40, "main")
LOAD = frames((SITE + "torch/nn/modules/module.py", 1341, "convert"), (SITE + "torch/nn/modules/module.py", 942, "_apply"),
              ("/home/user/train.py", 12, "build"), MAIN)
BATCH = frames((SITE + "accelerate/utils/operations.py", 148, "send_to_device"), ("/home/user/train.py", 20, "step"), MAIN)
FORWARD = frames(("/home/user/model.py", 31, "forward"), (SITE + "torch/nn/modules/module.py", 1773, "_call_impl"),
                 ("/home/user/train.py", 21, "step"), MAIN)
LOSS = frames((SITE + "torch/nn/functional.py", 3504, "cross_entropy"), ("/home/user/train.py", 22, "step"), MAIN)
OPT = frames((SITE + "torch/optim/adamw.py", 149, "_init_group"), (SITE + "torch/optim/adamw.py", 220, "step"),
             ("/home/user/train.py", 24, "step"), MAIN)
ZERO = frames((SITE + "torch/optim/optimizer.py", 1000, "zero_grad"), ("/home/user/train.py", 25, "step"), MAIN)
NONE = []       # autograd's threads have no Python frames


class Allocator:
    def __init__(self):
        self.segments, self.trace, self.next, self.clock = [], [], 0x7F0000000000, 0

    def event(self, action, addr, size, where):
        self.clock += 10
        self.trace.append({"action": action, "addr": addr, "size": size, "stream": 0, "time_us": self.clock, "frames": where})

    def alloc(self, size, where, recorded=True):
        room = -(-size // 512) * 512
        free = [(b["size"], b["address"], s, i) for s in self.segments for i, b in enumerate(s["blocks"])
                if b["state"] == "inactive" and b["size"] >= room]
        if not free:
            total = 20 * MIB if room < 10 * MIB else -(-room // (2 * MIB)) * 2 * MIB
            s = {"device": 0, "address": self.next, "total_size": total, "allocated_size": 0, "active_size": 0, "stream": 0,
                 "segment_type": "large", "segment_pool_id": (0, 0), "is_expandable": False, "frames": where,
                 "blocks": [{"address": self.next, "size": total, "requested_size": 0, "state": "inactive", "frames": []}]}
            if recorded:
                self.event("segment_alloc", self.next, total, where)
            self.next += total + 2 * MIB
            self.segments.append(s)
            free = [(total, s["address"], s, 0)]
        _, addr, s, i = min(free, key=lambda f: f[:2])
        b = s["blocks"][i]
        if b["size"] > room:
            s["blocks"].insert(i + 1, {"address": addr + room, "size": b["size"] - room, "requested_size": 0, "state": "inactive",
                                       "frames": []})
        b.update(size=room, requested_size=size, state="active_allocated", frames=where if recorded else [])
        s["allocated_size"] += room
        s["active_size"] += room
        if recorded:
            self.event("alloc", addr, size, where)
        return addr

    def free(self, addr, where):
        s, i = next((s, i) for s in self.segments for i, b in enumerate(s["blocks"]) if b["address"] == addr)
        b = s["blocks"][i]
        self.event("free_requested", addr, b["requested_size"], where)
        self.event("free_completed", addr, b["requested_size"], where)
        s["allocated_size"] -= b["size"]
        s["active_size"] -= b["size"]
        b.update(state="inactive", requested_size=0, frames=[])
        for j in (i, i - 1):        # joined with what is free beside it
            if 0 <= j < len(s["blocks"]) - 1 and s["blocks"][j]["state"] == s["blocks"][j + 1]["state"] == "inactive":
                s["blocks"][j]["size"] += s["blocks"].pop(j + 1)["size"]

    def snapshot(self):
        return {"segments": self.segments, "device_traces": [self.trace],
                "allocator_settings": {"PYTORCH_CUDA_ALLOC_CONF": "", "expandable_segments": False}}


def two_steps():
    """8 MiB of embedding before the recording, two blocks of 4 MiB in it; two steps of AdamW in fp32."""
    a = Allocator()
    a.alloc(8 * MIB, LOAD, recorded=False)
    for _ in range(2):
        a.alloc(4 * MIB, LOAD)
    for step in range(2):
        batch = a.alloc(64 << 10, BATCH)
        saved = []
        for _ in range(2):
            saved.append(a.alloc(6 * MIB, FORWARD))
            a.free(a.alloc(2 * MIB, FORWARD), FORWARD)
        logits = a.alloc(10 * MIB, LOSS)
        dlogits = a.alloc(10 * MIB, NONE)
        a.free(logits, NONE)
        grads = [a.alloc(size * MIB, NONE) for size in (8, 4, 4)]       # in the second step: the peak
        a.free(dlogits, NONE)
        for s in saved:
            a.free(s, NONE)
        if not step:
            for size in (8, 4, 4):
                for _ in range(2):
                    a.alloc(size * MIB, OPT)
        for g in grads:
            a.free(g, ZERO)
        a.free(batch, FORWARD)
    return a.snapshot()


def fragmented():
    """40 pieces of 6 MiB, three to a segment of 20; every second one is freed: 16 MiB are asked for, and no piece is as large."""
    a = Allocator()
    pieces = [a.alloc(6 * MIB, FORWARD) for _ in range(40)]
    for p in pieces[::2]:
        a.free(p, FORWARD)
    a.clock += 10
    a.trace.append({"action": "oom", "device_free": 3 * MIB, "size": 16 * MIB, "stream": 0, "time_us": a.clock, "frames": FORWARD})
    return a.snapshot()


def event(action, addr, size, frames, **more):
    return dict({"action": action, "addr": addr, "size": size, "stream": 0, "time_us": 1, "frames": frames}, **more)


def segment(device, address, blocks, grows=False):
    used = sum(b["size"] for b in blocks if b["state"] == "active_allocated")
    return {"device": device, "address": address, "total_size": sum(b["size"] for b in blocks), "allocated_size": used,
            "active_size": used, "requested_size": used, "stream": 0, "segment_type": "large", "segment_pool_id": (0, 0),
            "is_expandable": grows, "frames": [], "blocks": blocks}


def block(address, size, state, frames=()):
    return {"address": address, "size": size, "requested_size": size, "state": state, "frames": list(frames)}


def two_devices():
    """Two devices; on the second one an expandable segment that is mapped, used, and partly given back (torch 2.1 on), a
    compiled graph's frame, user_metadata and compile_context (2.8 on), and a refusal. Most on device 1: 40 + 40 MiB."""
    compiled = frames(("/tmp/torchinductor_u/ab/cab.py", 77, "call")) + FORWARD
    base = 0x9000000
    first = [event("segment_alloc", 0x1000000, 20 * MIB, FORWARD), event("alloc", 0x1000000, 8 * MIB, FORWARD, user_metadata="a")]
    second = [event("segment_map", base, 80 * MIB, FORWARD), event("alloc", base, 40 * MIB, compiled, compile_context="0/0"),
              event("alloc", base + 40 * MIB, 40 * MIB, OPT), event("free_requested", base, 40 * MIB, FORWARD),
              event("free_completed", base, 40 * MIB, FORWARD), event("segment_unmap", base, 40 * MIB, FORWARD), event("snapshot", 0, 0, []),
              {"action": "oom", "size": 90 * MIB, "device_free": 5 * MIB, "stream": 0, "time_us": 2, "frames": FORWARD}]
    return {"segments": [segment(0, 0x1000000, [block(0x1000000, 8 * MIB, "active_allocated", FORWARD),
                                                block(0x1800000, 12 * MIB, "active_awaiting_free")]),
                         segment(1, base, [block(base + 40 * MIB, 40 * MIB, "active_allocated", OPT)], grows=True)],
            "device_traces": [first, second], "allocator_settings": {"expandable_segments": True}, "external_annotations": []}


def smaller_refused():
    """Three devices (torch._C's list has one trace a device, empty ones too): the first holds most, the third, which
    holds least, is refused. Most on device 2: 12 MiB."""
    return {"segments": [segment(0, 0x1000000, [block(0x1000000, 64 * MIB, "active_allocated", OPT)]),
                         segment(2, 0x5000000, [block(0x5000000, 12 * MIB, "active_allocated", FORWARD)])],
            "device_traces": [[event("alloc", 0x1000000, 64 * MIB, OPT)], [],
                              [event("alloc", 0x5000000, 12 * MIB, FORWARD),
                               {"action": "oom", "size": 30 * MIB, "device_free": 1 * MIB, "stream": 0, "time_us": 2, "frames": FORWARD}]]}


def segments_alone():
    """What torch.cuda.memory_snapshot() returns."""
    return two_devices()["segments"]


def first_release():
    """torch 2.0: a block has no address of its own, and its frames in a history."""
    blocks = [{"size": 8 * MIB, "state": "active_allocated", "history": [{"addr": 0x1000000, "real_size": 8 * MIB, "frames": OPT}]},
              {"size": 12 * MIB, "state": "inactive"}]
    return {"segments": [{"device": 0, "address": 0x1000000, "total_size": 20 * MIB, "allocated_size": 8 * MIB, "active_size": 8 * MIB,
                          "stream": 0, "segment_type": "large", "blocks": blocks}],
            "device_traces": [[event("alloc", 0x1000000, 8 * MIB, OPT)]]}


def main():
    folder = sys.argv[1]
    for name, data, protocol in (("two-steps", two_steps(), 4), ("fragmented", fragmented(), 2), ("two-devices", two_devices(), 5),
                                 ("segments", segments_alone(), 3), ("smaller-refused", smaller_refused(), 4), ("first-release", first_release(), 4)):
        with open("%s/%s.pickle" % (folder, name), "wb") as f:
            pickle.dump(data, f, protocol)


if __name__ == "__main__":
    main()
