#!/usr/bin/env python3
"""How far published readings from real cards lie from what is predicted: data/residuals.csv, which `--confidence` uses.

    residuals.py PROGRAM            writes data/residuals.csv and prints planner/README.md's table
    residuals.py PROGRAM --check    compares instead: exit status 1 where a quantile has moved by more than one percent

data/readings/readings.csv holds the readings: the set-up in knobs, what was measured, where it is published.  A residual is
ln(measured / predicted); of allocated and reserved bytes the prediction has the cuBLAS workspaces in it, which PyTorch
takes from the caching allocator.  data/readings/outcomes.csv are published runs of which only that they ran or died is known.

A source is a stack of libraries, and what one of them does otherwise shifts all of its readings together: readings of one
source say little about the next source.  So a quantity has random effects (DerSimonian and Laird 1986, Controlled Clinical
Trials 7: 177-188): s2 within a source's readings of one kind of run, tau2 between the means of such cells.  For s2 every
source counts once: fifty runs more of one stack would else have all stacks spread as little as that one does.  A kind's mean is
drawn to that of all kinds by as much as its own readings leave open (variance tau2 between kinds, which is a guess), and a
new reading from a new source is distributed as Student's t about it, with a degree of freedom less than there are cells and
the variance s2 + tau2 + that of the mean (Higgins, Thompson and Spiegelhalter 2009, J. R. Stat. Soc. A 172: 137-159, section
4).  A kind that FEWEST sources have measured has its own s2 + tau2 where that is more than all kinds'.  A quantity that fewer
have measured says nothing of tau2: the largest of the others is taken."""
import csv, functools, math, os, subprocess, sys, tempfile

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../..")
READINGS = os.path.join(ROOT, "data/readings")
TABLE = os.path.join(ROOT, "data/residuals.csv")
LEVELS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 0.75, 0.9, 0.95, 0.975, 0.99, 0.995)
MEASURES = ("allocated", "reserved", "nvidia_smi")
FEWEST = 3


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


def priced(program, name):
    out = os.path.join(tempfile.mkdtemp(), "priced.csv")
    subprocess.run([program, "estimate", "--runs", os.path.join(READINGS, name), "--models-dir", READINGS, "-o", out],
                   check=True, stdout=subprocess.DEVNULL)
    for r in csv.DictReader(open(out)):
        if r["pred_error"]:
            sys.exit(f"{r['id']}: {r['pred_error']}")
        yield r


def price(program):
    rows = []
    for r in priced(program, "readings.csv"):
        predicted = {"allocated": float(r["pred_allocated"]),
                     "reserved": float(r["pred_reserved_bytes"]),
                     "nvidia_smi": float(r["pred_used_bytes"])}
        for m in MEASURES:
            if r[m]:
                rows.append((kind(r), m, r["source"].split("/blob/")[0] + " " + os.path.basename(r["source"]), float(r[m]) / predicted[m]))
    return rows


def t_below(x, df, steps=400):
    """Student's distribution function, by Simpson's rule."""
    c = math.exp(math.lgamma((df + 1) / 2) - math.lgamma(df / 2)) / math.sqrt(df * math.pi)
    at = [c * (1 + (x * i / steps) ** 2 / df) ** (-(df + 1) / 2) for i in range(steps + 1)]
    return 0.5 + x / steps / 3 * (at[0] + at[-1] + 4 * sum(at[1::2]) + 2 * sum(at[2:-1:2]))


@functools.lru_cache(None)
def t_quantile(level, df):
    low, high = -60.0, 60.0
    for _ in range(60):
        mid = (low + high) / 2
        low, high = (mid, high) if t_below(mid, df) < level else (low, mid)
    return low


def cells_of(rows):
    """{(kind, source): residuals} of rows of one quantity."""
    cells = {}
    for k, _, source, ratio in rows:
        cells.setdefault((k, source), []).append(math.log(ratio))
    return cells


def spread_of_sources(cells, mean):
    """The variance within cells, as the mean of what each source with more than one reading shows."""
    squares = {}
    for (kind_of_run, source), v in cells.items():
        of = squares.setdefault(source, [0.0, 0])
        of[0] += sum((x - mean[kind_of_run, source]) ** 2 for x in v)
        of[1] += len(v) - 1
    shown = [total / free for total, free in squares.values() if free]
    return sum(shown) / len(shown) if shown else 0.0


def between_and_within(rows):
    cells = cells_of(rows)
    mean = {c: sum(v) / len(v) for c, v in cells.items()}
    within = spread_of_sources(cells, mean)
    if not within:
        return 0.0, 0.0
    w = {c: len(v) / within for c, v in cells.items()}
    all_w = sum(w.values())
    centre = sum(w[c] * mean[c] for c in cells) / all_w
    room = all_w - sum(x * x for x in w.values()) / all_w
    scatter = sum(w[c] * (mean[c] - centre) ** 2 for c in cells) - (len(cells) - 1)
    return (max(0.0, scatter / room) if room > 0 else 0.0), within


def predictive(rows, kind, measure):
    """Centre, spread and degrees of freedom of a new reading of this kind, from rows of all quantities."""
    own = [r for r in rows if r[1] == measure]
    cells = cells_of(own)
    between, within = between_and_within(own)
    df = max(2, len(cells) - 1)
    if len({r[2] for r in own}) < FEWEST:
        others = [[r for r in rows if r[1] == m] for m in MEASURES if m != measure]
        others = [o for o in others if len({r[2] for r in o}) >= FEWEST]
        between = max([between] + [between_and_within(o)[0] for o in others])
        df = max([df] + [len(cells_of(o)) - 1 for o in others])
    mine = [r for r in own if r[0] == kind]
    if len({r[2] for r in mine}) >= FEWEST:
        between, within = max((between, within), between_and_within(mine), key=sum)
    weight = {c: 1 / (between + within / len(v)) for c, v in cells.items()}
    mean = lambda some: sum(weight[c] * sum(cells[c]) / len(cells[c]) for c in some) / sum(weight[c] for c in some)
    of_all, known = mean(cells), [c for c in cells if c[0] == kind]
    prior = 1 / (between + 1 / sum(weight.values()))
    own_weight = sum(weight[c] for c in known)
    centre = (own_weight * (mean(known) if known else 0.0) + prior * of_all) / (own_weight + prior)
    return centre, math.sqrt(within + between + 1 / (own_weight + prior)), df


def quantile(rows, kind, measure, level):
    centre, spread, df = predictive(rows, kind, measure)
    return math.exp(centre + spread * t_quantile(level, df))


def table(rows):
    out = []
    for m in MEASURES:
        every = [r for r in rows if r[1] == m]
        for k in sorted({r[0] for r in every}):
            own = [r for r in every if r[0] == k]
            out.append([k, m, len(own), len({r[2] for r in own}), len(every)] +
                       [f"{quantile(rows, k, m, q):.4f}" for q in LEVELS])
    return out


def held(rows, others):
    return sum(quantile(others, k, m, 0.025) <= v <= quantile(others, k, m, 0.975) for k, m, _, v in rows)


def report(rows):
    print("| kind of run | quantity | readings (sources) | median | 95 % of them | inside | inside, source left out |\n"
          "|---|---|---|---|---|---|---|")
    inside = tested = within = 0
    for k, m, n, sources, _, *q in table(rows):
        own = [r for r in rows if r[:2] == (k, m)]
        got = have = 0
        for s in sorted({r[2] for r in own}):
            rest = [r for r in rows if r[2] != s]
            if len([r for r in rest if r[1] == m]) >= FEWEST:
                mine = [r for r in own if r[2] == s]
                got, have = got + held(mine, rest), have + len(mine)
        inside, tested, within = inside + got, tested + have, within + held(own, rows)
        print(f"| {k} | {m} | {n} ({sources}) | {100 * (float(q[6]) - 1):+.1f} % | {100 * (float(q[2]) - 1):+.1f} to "
              f"{100 * (float(q[10]) - 1):+.1f} % | {held(own, rows)} | {f'{got} of {have}' if have else 'no other source'} |")
    print(f"inside: {within} of {len(rows)} ({100 * within / len(rows):.0f} %); "
          f"source left out: {inside} of {tested} ({100 * inside / tested:.0f} %)")


def verdicts(program, name):
    """Whether the program says that they fit, as sweep does it: on the row's card, with the default margin."""
    beside = ("id", "source", "printed", "outcome") + MEASURES
    rows = list(csv.DictReader(open(os.path.join(READINGS, name))))
    knobs = [c for c in rows[0] if c not in beside]
    points, out = (os.path.join(tempfile.mkdtemp(), n) for n in ("points.csv", "judged.csv"))
    with open(points, "w", newline="") as f:
        w = csv.writer(f)
        w.writerow(knobs)
        for r in rows:
            own = os.path.abspath(os.path.join(READINGS, r["model"] + ".json"))
            w.writerow([own if c == "model" and os.path.exists(own) else r[c] for c in knobs])
    subprocess.run([program, "sweep", "--from", points, "-o", out, "--columns", "fits,error"], check=True, stderr=subprocess.DEVNULL)
    for r, judged in zip(rows, csv.DictReader(open(out)), strict=True):
        if not judged["error"]:
            yield r, judged["fits"] in ("1", "true")


def outcomes(program):
    """Readings ran, too."""
    wrong, seen = {"ran": [0, []], "oom": [0, []]}, set()
    for name in ("readings.csv", "outcomes.csv"):
        for r, fits in verdicts(program, name):
            run = r["id"].replace("smi-", "-")      # one run's readings are rows of their own
            if run not in seen:
                seen.add(run)
                count = wrong[r.get("outcome") or "ran"]
                count[0] += 1
                if fits != (count is wrong["ran"]):
                    count[1].append(r["id"])
    (ran, refused), (died, promised) = wrong["ran"], wrong["oom"]
    print(f"{ran} ran, said not to: {len(refused)} {' '.join(refused)}; {died} died, said to fit: {len(promised)} {' '.join(promised)}")


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
    outcomes(sys.argv[1])


main()
