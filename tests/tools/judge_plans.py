#!/usr/bin/env python3
"""Asks thousands of questions and judges the plans that come back by rules of its own.

    judge_plans.py [-n 4000] [--seed 1] [--grid other|third] [--rules FILE] [--flags FILE] [--bars] OOMPLAN

Questions: configs of tests/accuracy/configs x cards x 1 to 8 GPUs x set-ups, drawn with a seed.  There
are three grids (plan_questions.py): the one that the search was made with, and two of other models, cards and set-ups.
For each `oomplan plan --json` is run.  The cheapest plan and the ladder's, where they change
something, are held against plan_rules.csv: conditions written apart from data/compat.csv, read by
this program alone.  A fault that the question itself has is not counted.  A conditional rule counts
where the report does not print what it needs.  "None fits" is tried by brute force: `oomplan sweep`
over every known change at once, of which a legal row that fits proves the answer wrong.  It is wider
than the search: a second pass has options and layouts that the search never takes (WIDER).

--bars: exit 1 where more than 2 % of changed plans break a rule or more than 5 % of "none fits" are
wrong."""

import argparse
import collections
import concurrent.futures
import csv
import io
import itertools
import json
import os
import subprocess
import sys

sys.dont_write_bytecode = True                      # a test leaves nothing in the sources

from plan_questions import CARDS, CONFIGS, GRIDS, OTHER_CARDS, THIRD_CARDS, questions  # noqa: E402

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.join(HERE, "..", "..")

# ---- the rules ----

def read_flags(path):
    """By class, and by type for configs without an architecture."""
    by_class, by_type = {}, {}
    for row in csv.DictReader(open(path)):
        row = {k: row.get(k, row.get({"ckpt": "checkpointing", "no_split": "wraps",
                                      "fp16_overflow": "fp16-overflow"}.get(k, k), ""))
               for k in ("model_type", "type", "class", "ckpt", "sdpa", "flash", "no_split", "liger",
                         "batchnorm", "fp16_overflow", "cut", "task")}
        row["model_type"] = row["model_type"] or row["type"]
        by_class[row["class"]] = row
        by_type.setdefault(row["model_type"], row)
    return by_class, by_type


def flags_of(config, flags):
    by_class, by_type = flags
    for name in config.get("architectures") or []:
        if name in by_class:
            return by_class[name]
    return by_type.get(config.get("model_type"), {})


RENAMED = {"loss": "fused_ce"}
BITS = {"class_ckpt": "ckpt", "class_sdpa": "sdpa", "class_flash": "flash", "liger": "liger",
        "batchnorm": "batchnorm", "fp16_overflow": "fp16_overflow", "class_cut": "cut",
        "class_task": "task"}


def value(name, plan, facts):
    if name in BITS:
        return facts["flags"].get(BITS[name], "")
    if name == "no_split":
        named = facts["flags"].get("no_split", "")
        return "" if not facts["flags"] else "0" if named in ("", "0") else "1"
    if name in ("cc", "vendor"):
        return facts[name]
    if name == "qlora":
        return "1" if plan["qlora"] else "0"
    v = plan.get(RENAMED.get(name, name), "")
    return ("1" if v else "0") if isinstance(v, bool) else str(v)


def holds(term, plan, asked, facts):
    for op in ("!=", ">=", "<=", "<", ">", "="):
        if op in term:
            name, words = term.split(op, 1)
            break
    have = value(name, plan, facts)
    if have == "":
        return False
    if op in ("=", "!="):
        words = [value(name, asked, facts) if w == "asked" else w for w in words.split("|")]
        return (have in words) == (op == "=")
    have, limit = float(have), float(words)
    return {"<": have < limit, ">": have > limit, "<=": have <= limit, ">=": have >= limit}[op]


def broken(rules, plan, asked, facts):
    return {r["rule_id"] for r in rules
            if all(holds(t, plan, asked, facts) for t in r["when"].split(" & "))}


# ---- brute force ----

AXES = {
    "precision": None,
    "grad-ckpt": ("none", "full"),
    "attn": ("sdpa", "eager"),
    "loss": ("plain", "fused", "chunked-nll"),
    "optimizer": ("adamw-fused", "adamw-8bit", "paged-adamw-8bit", "adamw-4bit"),
    "optimizer-in-backward": ("false", "true"),
    "offload-activations": ("false", "true"),
    "allocator": ("expandable_segments",),
}
# engine, stage, offload of optimizer and parameters; which asked engines may become it
LAYOUTS = (("hf", 0, "none", "none"), ("hf", 0, "cpu", "none"), ("deepspeed", 2, "cpu", "none"),
           ("deepspeed", 3, "cpu", "cpu"), ("deepspeed", 3, "none", "none"),
           ("fsdp2", 3, "none", "none"), ("fsdp2", 3, "none", "cpu"), ("fsdp1", 3, "none", "none"),
           ("fsdp1", 3, "none", "cpu"))
# Options that the search never takes by itself, together with those that mostly hold least.
WIDER = {
    "precision": None,
    "grad-ckpt": ("full",),
    "attn": ("sdpa", "flash"),
    "loss": ("plain", "fused", "cut", "tiled"),
    "optimizer": ("adamw-8bit", "paged-adamw", "adamw-torchao-8bit", "adamw-torchao-fp8"),
    "optimizer-in-backward": ("false",),
    "offload-activations": ("false", "true"),
    "liger-kernels": ("none", "all"),
    "allocator": ("expandable_segments",),
}
# beside them: DeepSpeed with small buckets, states on disk, states alone on the host under stage 3
WIDER_LAYOUTS = (("hf", 0, "none", "none"), ("deepspeed", 1, "none", "none"),
                 ("deepspeed", 2, "none", "none"), ("deepspeed", 3, "cpu", "none"),
                 ("deepspeed", 3, "nvme", "nvme"), ("deepspeed", 3, "cpu", "cpu"),
                 ("fsdp2", 2, "none", "none"), ("fsdp2", 3, "none", "none"),
                 ("fsdp2", 3, "none", "cpu"), ("fsdp1", 2, "none", "none"),
                 ("fsdp1", 3, "none", "cpu"))
SMALL_BUCKETS = {"reduce-bucket-size": "50000000", "prefetch-bucket-size": "0",
                 "max-live-parameters": "100000000"}


def precisions(asked, facts):
    p, old = asked["precision"], facts["vendor"] == "nvidia" and float(facts["cc"]) < 8
    if asked["lora_r"]:
        return (p,)
    if p == "fp32":
        return (p, "amp-fp16") if old else (p, "amp-bf16", "bf16")
    if p == "amp-bf16" and not old:
        return (p, "bf16")
    return (p,)


def sweep(oomplan, q, asked, facts, layout, batches, hooks, axes=None):
    engine, zero, optimizer, params = layout
    cmd = [oomplan, "sweep", "--model", os.path.join(CONFIGS, q["model"] + ".json"), "--gpu", q["card"],
           "--where", "fits", "--threads", "1"]
    fixed = dict(q["knobs"])
    for name, words in (axes or AXES).items():
        if name == "precision":
            words = precisions(asked, facts)
        if name == "optimizer-in-backward":
            words = ("true",) if hooks else ("false",)
        if name == "optimizer" and (asked["lora_r"] or not asked["optimizer"].startswith("adamw")):
            words = (asked["optimizer"],)
        fixed.pop(name, None)
        cmd += ["--axis", name + "=" + ",".join(words)]
    fixed.update({"engine": engine, "zero": str(zero), "offload-optimizer": optimizer,
                  "offload-params": params, "micro-batch": str(batches[0]),
                  "grad-accum": str(batches[1])})
    if axes is WIDER and engine == "deepspeed":
        fixed.update(SMALL_BUCKETS)
    if axes is WIDER and asked["qlora"]:
        fixed["kbit-prepare"] = "false"
    cmd += ["--%s=%s" % kv for kv in fixed.items()]
    r = subprocess.run(cmd, capture_output=True, text=True)
    return list(csv.DictReader(io.StringIO(r.stdout))) if r.returncode in (0, 1) else []


def full_plan(row, asked, layout, batches):
    plan = dict(asked)
    for k, v in row.items():
        if k in plan:
            plan[k] = v in ("true", "1") if isinstance(plan[k], bool) else v
    plan.update(engine=layout[0], zero_stage=layout[1], offload_optimizer=layout[2],
                offload_params=layout[3], micro_batch=batches[0], grad_accum=batches[1])
    return plan


def fits_after_all(oomplan, q, asked, facts, rules, excused):
    """A legal plan that fits, or None."""
    if asked["engine"] in ("megatron", "torchtune"):
        return megatron_fits(oomplan, q, asked) if asked["engine"] == "megatron" else None
    return (fits_in(oomplan, q, asked, facts, rules, excused, LAYOUTS, AXES) or
            fits_in(oomplan, q, asked, facts, rules, excused, WIDER_LAYOUTS, WIDER))


def megatron_fits(oomplan, q, asked):
    """Over degrees, recomputation and the distributed optimizer; Megatron checks them itself."""
    whole = asked["micro_batch"] * asked["grad_accum"] * asked["gpus"]
    degrees = [d for d in (1, 2, 4, 8) if d <= asked["gpus"]]
    for tp, pp, ep in itertools.product(degrees, degrees, degrees):
        if tp * pp > asked["gpus"] or asked["gpus"] % (tp * pp):
            continue
        if ep > 1 and (asked["gpus"] // (tp * pp)) % ep:
            continue
        cmd = [oomplan, "sweep", "--model", os.path.join(CONFIGS, q["model"] + ".json"), "--gpu",
               q["card"], "--where", "fits", "--threads", "1", "--axis", "grad-ckpt=full,selective",
               "--axis", "sp=false,true", "--axis", "loss=plain,fused"]
        fixed = dict(q["knobs"], tp=tp, pp=pp, ep=ep, zero=1)
        fixed["micro-batch"], fixed["grad-accum"] = 1, max(1, whole * tp * pp // asked["gpus"])
        r = subprocess.run(cmd + ["--%s=%s" % kv for kv in fixed.items()], capture_output=True, text=True)
        rows = list(csv.DictReader(io.StringIO(r.stdout))) if r.returncode in (0, 1) else []
        if rows:
            return dict(asked, tp=tp, pp=pp, ep=ep, zero_stage=1, micro_batch=1)
    return None


def fits_in(oomplan, q, asked, facts, rules, excused, layouts, axes):
    whole = asked["micro_batch"] * asked["grad_accum"]
    gpus, engine = asked["gpus"], asked["engine"]
    for layout in layouts:
        if layout[0] != "hf" and gpus == 1 and layout[2:] == ("none", "none"):
            continue
        if engine not in ("hf", layout[0]) and layout[0] != "hf":
            continue
        if engine not in ("hf",) and layout[0] == "hf" and gpus > 1:
            continue
        if layout == ("hf", 0, "cpu", "none") and gpus > 1:
            continue
        for hooks in (False, True) if layout == LAYOUTS[0] and gpus == 1 and axes is AXES else (False,):
            batches = (whole, 1) if hooks else (1, whole)
            for row in sweep(oomplan, q, asked, facts, layout, batches, hooks, axes):
                plan = full_plan(row, asked, layout, batches)
                if axes is WIDER and asked["qlora"]:
                    plan["kbit_prepare"] = False
                if not {r for r in broken(rules, plan, asked, facts)
                        if BY_ID[r]["verdict"] in ("refused", "other", "inadvisable")} - excused:
                    return plan
    return None


# ---- one question ----

BY_ID = {}


def ask(oomplan, q, rules, flags, brute):
    cmd = [oomplan, "plan", "--model", os.path.join(CONFIGS, q["model"] + ".json"), "--gpu", q["card"],
           "--json", "--ladder"] + ["--%s=%s" % kv for kv in q["knobs"].items()]
    r = subprocess.run(cmd, capture_output=True, text=True)
    if r.returncode not in (0, 1):
        return {"q": q, "error": r.stderr.strip()[:200]}
    d = json.loads(r.stdout)
    config = json.load(open(os.path.join(CONFIGS, q["model"] + ".json")))
    cc, vendor = dict(CARDS, **OTHER_CARDS, **THIRD_CARDS)[q["card"]]
    facts = {"flags": flags_of(config, flags), "cc": str(cc) if cc else "", "vendor": vendor}
    asked = d["asked"]["plan"]
    out = {"q": q, "fits": d["fits"], "asked_fits": d["asked"]["fits"], "breaks": {}, "cmd": cmd}
    own = broken(rules, asked, asked, facts)
    plans = {"cheapest": (d["plan"], d["compat"])}
    if "ladder_plan" in d and d["ladder_fits"]:
        plans["ladder"] = (d["ladder_plan"], d["ladder_compat"])
    for name, (plan, said) in plans.items():
        if plan == asked or not d["fits"]:
            continue
        out[name] = True
        bad = []
        for rule in broken(rules, plan, asked, facts):
            verdict = BY_ID[rule]["verdict"]
            if verdict == "conditional" and not any(s["setting"] for s in said):
                bad.append(rule)
            elif verdict in ("refused", "other") or (verdict == "inadvisable" and rule not in own):
                bad.append(rule)
        if bad:
            out["breaks"][name] = bad
    if not d["fits"] and brute:
        out["after_all"] = fits_after_all(oomplan, q, asked, facts, rules, own)
    return out


def main():
    p = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    p.add_argument("oomplan")
    p.add_argument("-n", type=int, default=4000)
    p.add_argument("--seed", type=int, default=1)
    p.add_argument("--grid", choices=sorted(GRIDS), default="first")
    p.add_argument("--only", type=int, help="this question alone, with its answers")
    p.add_argument("--rules", default=os.path.join(HERE, "plan_rules.csv"))
    p.add_argument("--flags", default=os.path.join(ROOT, "data", "class_flags.csv"))
    p.add_argument("--skip", default="", help="rules to leave out, joined by commas")
    p.add_argument("--bars", action="store_true")
    p.add_argument("--jobs", type=int, default=1)
    a = p.parse_args()
    rules = [r for r in csv.DictReader(open(a.rules))
             if r["verdict"] != "note" and r["rule_id"] not in a.skip.split(",")]
    BY_ID.update((r["rule_id"], r) for r in rules)
    flags = read_flags(a.flags)
    qs = questions(a.n, a.seed, a.grid)
    if a.only is not None:
        qs = qs[a.only:a.only + 1]
    with concurrent.futures.ThreadPoolExecutor(a.jobs) as pool:
        results = list(pool.map(lambda q: ask(a.oomplan, q, rules, flags, True), qs))
    return report(results, a.bars)


def report(results, bars):
    total = collections.Counter()
    rules, wrong, errors = collections.Counter(), [], collections.Counter()
    for i, r in enumerate(results):
        if "error" in r:
            errors[r["error"]] += 1
            continue
        total["answered"] += 1
        for name in ("cheapest", "ladder"):
            total[name] += bool(r.get(name))
            if name in r["breaks"]:
                total[name + " breaks"] += 1
                for rule in r["breaks"][name]:
                    rules[name, rule] += 1
                    if rules[name, rule] <= 2:
                        print("%s breaks %s: %s" % (name, rule, " ".join(r["cmd"][1:])))
        if not r["fits"]:
            total["none fits"] += 1
            if r["after_all"]:
                total["wrong"] += 1
                wrong.append((i, r))
    for i, r in wrong[:30]:
        asked = r["after_all"]
        print("none fits, wrong:", i, r["q"]["setup"], " ".join(r["cmd"][3:]), "->",
              {k: asked[k] for k in ("precision", "grad_ckpt", "fused_ce", "optimizer", "engine",
                                     "zero_stage", "offload_optimizer", "offload_params",
                                     "offload_activations", "optimizer_in_bwd", "micro_batch")})
    for e, n in errors.most_common(10):
        print("%5d  %s" % (n, e))
    for key, n in rules.most_common():
        print("%5d  %s %s" % ((n,) + key))
    share = {k: 100.0 * total[b] / max(1, total[k])
             for k, b in (("cheapest", "cheapest breaks"), ("ladder", "ladder breaks"),
                          ("none fits", "wrong"))}
    for k, b in (("cheapest", "cheapest breaks"), ("ladder", "ladder breaks"), ("none fits", "wrong")):
        print("%-10s %5d, of them wrong %4d (%.1f %%)" % (k, total[k], total[b], share[k]))
    print("%d questions, %d refused as questions" % (len(results), sum(errors.values())))
    if bars and (share["cheapest"] > 2 or share["ladder"] > 2 or share["none fits"] > 5):
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
