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


def main():
    folder = sys.argv[1]
    for name, data, protocol in (("two-steps", two_steps(), 4), ("fragmented", fragmented(), 2)):
        with open("%s/%s.pickle" % (folder, name), "wb") as f:
            pickle.dump(data, f, protocol)


if __name__ == "__main__":
    main()
