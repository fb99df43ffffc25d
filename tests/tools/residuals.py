#!/usr/bin/env python3
"""How far published readings from real cards lie from what is predicted: data/residuals.csv, which `--confidence` uses.

    residuals.py PROGRAM            writes data/residuals.csv and prints planner/README.md's table
    residuals.py PROGRAM --check    compares instead: exit status 1 where a quantile has moved by more than one percent

data/readings/readings.csv holds the readings: the set-up in knobs, what was measured, where it is published.  A residual is
measured / predicted; of allocated bytes the prediction has the cuBLAS workspaces in it, which PyTorch takes from the caching
allocator.  Quantiles lie on the line between order statistics over normal scores of (i - 0.5) / n, and beyond the outermost
on the line from the median through them.  Kinds with fewer than FEWEST readings have the quantiles of all readings of the
quantity."""
import csv, math, os, statistics, subprocess, sys, tempfile

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../..")
READINGS = os.path.join(ROOT, "data/readings")
TABLE = os.path.join(ROOT, "data/residuals.csv")
LEVELS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 0.75, 0.9, 0.95, 0.975, 0.99, 0.995)
MEASURES = ("allocated", "reserved", "nvidia_smi")
FEWEST = 12
normal = statistics.NormalDist()


def kind(row):
    """As oom_kind_of_run in planner/calibrate/kinds.c."""
    many, engine = int(row["gpus"] or 1) > 1, row["engine"]
    stage = int(row["zero_stage"] or 0)
    adapters = " adapters" if int(row["lora_r"] or 0) else " full"
    if engine == "megatron":
        return "megatron"
    if not many:
        return "one-gpu" + adapters
    if not stage:
        return "copies" + adapters
    return ("fsdp" if engine.startswith("fsdp") or engine == "torchtune" else "zero") + adapters


def price(program):
    d = tempfile.mkdtemp()
    out = os.path.join(d, "priced.csv")
    subprocess.run([program, "estimate", "--runs", os.path.join(READINGS, "readings.csv"), "--models-dir", READINGS, "-o", out],
                   check=True, stdout=subprocess.DEVNULL)
    rows = []
    for r in csv.DictReader(open(out)):
        if r["pred_error"]:
            sys.exit(f"{r['id']}: {r['pred_error']}")
        predicted = {"allocated": float(r["pred_overall_peak"]) + float(r["pred_workspace_bytes"]), "reserved": float(r["pred_reserved_native"]),
                     "nvidia_smi": float(r["pred_used_bytes"])}
        for m in MEASURES:
            if r[m]:
                rows.append((kind(r), m, r["source"].split("/blob/")[0] + " " + os.path.basename(r["source"]), float(r[m]) / predicted[m]))
    return rows


def quantile(ratios, level):
    x = sorted(math.log(v) for v in ratios)
    n, z = len(x), normal.inv_cdf(level)
    at = [normal.inv_cdf((i + 0.5) / n) for i in range(n)]
    median = statistics.median(x)
    if n == 1:
        return math.exp(x[0])
    if z <= at[0] or z >= at[-1]:
        end = 0 if z <= at[0] else n - 1
        return math.exp(median + (x[end] - median) * z / at[end])
    i = next(i for i in range(1, n) if z <= at[i])
    return math.exp(x[i - 1] + (x[i] - x[i - 1]) * (z - at[i - 1]) / (at[i] - at[i - 1]))


def table(rows):
    out = []
    for m in MEASURES:
        every = [r for r in rows if r[1] == m]
        for k in sorted({r[0] for r in every}):
            own = [r for r in every if r[0] == k]
            of = own if len(own) >= FEWEST else every
            out.append([k, m, len(own), len({r[2] for r in own}), len(of)] +
                       [f"{quantile([r[3] for r in of], q):.4f}" for q in LEVELS])
    return out


def held(ratios, others):
    return sum(quantile(others, 0.025) <= v <= quantile(others, 0.975) for v in ratios)


def report(rows):
    print("| kind | quantity | readings | sources | median | 95 % of them | left out by source |\n|---|---|---|---|---|---|---|")
    inside = tested = 0
    for k, m, n, sources, of, *q in table(rows):
        own = [r for r in rows if r[:2] == (k, m)]
        got = have = 0
        for s in sorted({r[2] for r in own}):
            mine = [r[3] for r in own if r[2] == s]
            rest = [r[3] for r in own if r[2] != s]
            rest = rest if len(rest) >= FEWEST else [r[3] for r in rows if r[1] == m and r[2] != s]
            if len(rest) >= 2:
                got, have = got + held(mine, rest), have + len(mine)
        inside, tested = inside + got, tested + have
        print(f"| {k} | {m} | {n} | {sources} | {100 * (float(q[6]) - 1):+.1f} % | {100 * (float(q[2]) - 1):+.1f} to {100 * (float(q[10]) - 1):+.1f} %"
              f"{'' if of == n else ' (all kinds)'} | {got} of {have} |")
    print(f"left out by source: {inside} of {tested} inside ({100 * inside / tested:.0f} %)")


def main():
    rows = price(sys.argv[1])
    new = table(rows)
    if "--check" in sys.argv:
        old = list(csv.reader(open(TABLE)))[1:]
        if [r[:5] for r in old] != [[str(c) for c in r[:5]] for r in new]:
            sys.exit("data/residuals.csv: other rows than readings.csv makes: run tests/tools/residuals.py PROGRAM")
        far = [(o[0], o[1]) for o, n in zip(old, new) if any(abs(float(a) / float(b) - 1) > 0.01 for a, b in zip(o[5:], n[5:]))]
        sys.exit(f"data/residuals.csv: predictions have moved for {far}: run tests/tools/residuals.py PROGRAM" if far else 0)
    with open(TABLE, "w", newline="") as f:
        w = csv.writer(f, lineterminator="\n")
        w.writerow(["kind", "measure", "n", "sources", "of"] + [f"q{100 * l:g}" for l in LEVELS])
        w.writerows(new)
    report(rows)


main()
