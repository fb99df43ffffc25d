#!/usr/bin/env python3
"""What steps with adapters of many kinds hold between one step and the next, beside published readings.

    held.py PROGRAM         exit status 1 where one of them is more than MOST apart

data/readings/held.csv are PEFT's own runs of Llama 3.2 3B with one kind of adapters after the other over the same batches
(method_comparison/MetaMathQA, transformers 5.13, PyTorch 2.13): `held` is the mean over 5,000 steps of what
torch.cuda.memory_allocated() said after each, in bytes.  Its run.py clears gradients at the start of a step and keeps the model's
outputs, so that weights, gradients, states, logits and the cache of keys and values are there.  What the outputs are is a
matter of the lengths, which are the same in all runs and not published: every row is compared with the first by what is more
or less in it.  Left out are virtual tokens, which make the outputs longer, and kinds with an option that no knob has."""
import csv, os, subprocess, sys, tempfile

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../..")
READINGS = os.path.join(ROOT, "data/readings")
MOST = 0.001            # of what is held: 7 MB, where a state or a gradient of the first row's adapters is 37


def main():
    with tempfile.TemporaryDirectory() as folder:
        out = os.path.join(folder, "priced.csv")
        subprocess.run([sys.argv[1], "estimate", "--runs", os.path.join(READINGS, "held.csv"), "--models-dir", READINGS, "-o", out],
                       check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        rows = list(csv.DictReader(open(out)))
    if not rows or any(r["pred_error"] for r in rows):
        sys.exit(f"not priced: {[r['id'] for r in rows if r['pred_error']]}")
    first, far = rows[0], []
    for r in rows:
        more = float(r["pred_bwd2_end"]) - float(first["pred_bwd2_end"])
        error = (float(first["held"]) + more) / float(r["held"]) - 1
        print(f"{r['id']:32} {float(r['held']) / 1e6:9.1f} MB {100 * error:+.3f} %")
        if abs(error) > MOST:
            far.append(r["id"])
    sys.exit(f"further apart than {100 * MOST} %: {far}" if far else 0)


if __name__ == "__main__":
    main()
