#!/usr/bin/env python3
"""Draws runs over all model types, for the oracle to measure: a line of JSON each, as measure_memory.py reads them.

    draw_runs.py ORACLE_FOLDER CONFIGS_FOLDER SEED COUNT > runs.jsonl

ORACLE_FOLDER holds measure_memory.py, CONFIGS_FOLDER configs of real models.  Needs the oracle's torch and transformers.
Every type of data/model_types.jsonl that has a class for a task comes once per round, in an order of its own; task, depth,
batch, precision, attention, mask, checkpointing, optimizer, adapters and 4-bit bases are drawn.  What the libraries refuse
(a length beyond the positions, checkpointing of a model that has none) is drawn again within what they take.

The rows of tests/accuracy/peaks_drawn.csv were drawn in this way (2026-11-23) and measured with torch 2.14.1, transformers
5.12.1 and PEFT 0.20.1.dev0; what each ran stands in the table and in drawn/.  Left out are rows in which the emulation
differs from the libraries: 4-bit Conv1D layers and classification heads, drop paths (their schedule is read as 0 while a
model is built), a mask for no padding beside one for padding, and targets that PEFT finds in a head.

Those of peaks_third.csv are seeds 7411 (80) and 90210 (90) of 2026-11-25: all that the libraries run and the program does
not announce as approximated, whatever it makes of them; depths stand in third/.

Those of peaks_fourth.csv are seeds 5151 (60) and 6262 (150) of 2026-11-26, of which 137 ran; left out are rows that are announced as
approximated and image classifiers whose drop paths the emulation reads as 0 (CvT, data2vec-vision, FocalNet, Swin)."""
import collections
import contextlib
import json
import os
import random
import sys

os.environ.setdefault('PYTORCH_JIT', '0')
ORACLE, CONFIGS, SEED, COUNT = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
sys.path.insert(0, ORACLE)
import torch  # noqa: E402
import measure_memory as oracle  # noqa: E402

R = random.Random(SEED)
ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), '..', '..')
TASKS = ('causal-lm', 'masked-lm', 'seq-cls', 'image-cls', 'seq2seq')
OPTIMIZERS = ('adamw', 'adamw-8bit-embfp32', 'none', 'adamw-8bit', 'lion-8bit', 'adafactor', 'sgd-momentum', 'lion',
              'adamw-bnb32', 'sgd', 'paged-adamw-8bit', 'adamw-fused')
LENGTHS = (64, 77, 128, 200, 333, 512, 777, 1000, 1024, 1536, 2048)
# the emulation quantises what the library does not, or the other way round
NO_FOUR_BITS = ('gpt2', 'gpt_bigcode', 'xlnet', 'openai-gpt', 'imagegpt')


def pools():
    """Of each task the types, and of each type the configs of real models."""
    with open(os.path.join(ROOT, 'data', 'model_types.jsonl')) as f:
        known = {line.split('\t', 1)[0] for line in f}
    tasks = {t: {c.model_type for c in oracle.auto_class(t)._model_mapping.keys()} & known for t in TASKS}
    real = collections.defaultdict(list)
    for name in sorted(os.listdir(CONFIGS)):
        with open(os.path.join(CONFIGS, name)) as f:
            config = json.load(f)
        real[config['model_type']].append((name[:-5], config))
    return tasks, real


def draw(kind, tasks, real):
    mine = sorted(t for t in TASKS if kind in tasks[t])
    task = R.choice(mine)
    if task == 'causal-lm' and 'seq-cls' in mine and R.random() < .3:
        task = 'seq-cls'
    name, config = 'default-' + kind, {'model_type': kind}
    if kind in real and R.random() < .6:
        name, config = R.choice(real[kind])
    image = task == 'image-cls'
    spec = dict(
        model=name, family=kind, config=config, num_layers=R.choice([2, 2, 2, 3, 3, 4, 5]), task=task,
        micro_batch=R.choice([1, 2, 3, 4, 5, 6, 7, 8, 12, 16]), seq_len=0 if image else R.choice(LENGTHS),
        precision=R.choice(['fp32', 'bf16', 'bf16', 'fp16', 'amp-bf16', 'amp-fp16', 'bf16-amp']),
        attn=R.choice(['eager', 'sdpa', 'sdpa', 'flash']), padding_mask=not image and R.random() < .4,
        grad_ckpt=R.random() < .5, optimizer=R.choice(OPTIMIZERS), lora_r=R.choice([0, 0, 1, 4, 8, 16, 64, 128, 256]),
        lora_dropout=R.choice([0.0, 0.0, 0.05, 0.1]), grad_accum=R.choice([1, 1, 2, 3]))
    spec['convert_outputs_fp32'] = 'amp' in spec['precision'] and R.random() < .7
    if image:
        spec.update(image_size=R.choice([None, 192, 224, 256, 384]), num_labels=R.choice([2, 10, 1000, 21843]))
    if task == 'seq-cls':
        spec['num_labels'] = R.choice([2, 3, 10, 1000])
    if task == 'seq2seq':
        spec['tgt_len'] = R.choice([None, 16, 128, 200, 512])
    spec['fused_ce'] = task == 'causal-lm' and not spec['lora_r'] and R.random() < .1
    if spec['attn'] == 'flash' and (spec['padding_mask'] or spec['precision'] == 'fp32' or image):
        spec['attn'] = 'sdpa'
    heads = task == 'seq-cls' and any(k in kind for k in ('roberta', 'camembert', 'data2vec'))
    if spec['lora_r'] and not image and kind not in NO_FOUR_BITS and not heads and R.random() < .4:
        spec.update(qlora=True, kbit_prepare=R.random() < .7, double_quant=R.random() < .6,
                    precision=R.choice(['bf16', 'bf16-amp']))
    return spec


def built(spec):
    """The config and its model on no device; None where the library refuses."""
    for attn in (spec['attn'], 'eager'):
        try:
            config = oracle.load_config(oracle.normalise(spec))
            # the library tells of its own docstrings on standard output
            with torch.device('meta'), contextlib.redirect_stdout(sys.stderr):
                model = oracle.auto_class(spec['task']).from_config(
                    config, attn_implementation='eager' if attn == 'eager' else 'sdpa')
        except Exception:  # whatever a library raises: this kernel it does not have
            continue
        spec['attn'] = attn
        return config, model
    return None, None


def targets(spec, model):
    """Names of one to three linear layers, or all-linear."""
    head = model.get_output_embeddings()
    names = sorted({path.split('.')[-1] for path, m in model.named_modules()
                    if (type(m) is torch.nn.Linear or type(m).__name__ == 'Conv1D') and m is not head})
    names = [n for n in names if not n.isdigit() and 'classif' not in n and n not in ('score', 'fc')]
    if not names:
        return ''
    if R.random() < .25 and spec['task'] != 'image-cls':
        return 'all-linear'
    return '+'.join(R.sample(names, min(len(names), R.choice([1, 2, 2, 3]))))


def within(spec, config, model):
    """What the library takes of it."""
    if not getattr(type(model), 'supports_gradient_checkpointing', False):
        spec['grad_ckpt'] = False
    longest = getattr(config.get_text_config(), 'max_position_embeddings', 0) or 0
    if 0 < longest <= 1026 and spec['seq_len'] > longest - 2:
        spec['seq_len'] = R.choice([n for n in LENGTHS if n <= longest - 2] or [64])
    if spec['lora_r']:
        spec['lora_targets'] = targets(spec, model)
        if not spec['lora_targets']:
            spec.update(lora_r=0, qlora=False, kbit_prepare=False)
        if any(type(m).__name__.endswith('Experts') for m in model.modules()):
            spec['lora_dropout'] = 0.0


def main():
    tasks, real = pools()
    types = sorted(set().union(*tasks.values()))
    R.shuffle(types)
    drawn = at = 0
    while drawn < COUNT:
        spec = draw(types[at % len(types)], tasks, real)
        at += 1
        config, model = built(spec)
        if model is None or sum(p.numel() for p in model.parameters()) > 40e9:
            continue
        within(spec, config, model)
        spec['id'] = '%s-%s-%d%03d' % (spec['family'], spec['task'], SEED, drawn)
        print(json.dumps(spec), flush=True)
        drawn += 1


if __name__ == '__main__':
    main()
