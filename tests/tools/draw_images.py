#!/usr/bin/env python3
"""Draws steps on images with adapters, 4-bit bases and checkpoints, and measures them: rows as tests/accuracy/images_adapted.csv
holds them.

    draw_images.py ORACLE OUT.csv CONFIGS SEED COUNT

The rows there are of seed 424242 (36 draws, of which 31 ran), measured and priced on 2026-11-27 before anything was mended for
them; of those that were right only a few are rows.
"""
import csv
import json
import os
import random
import sys
import traceback

SEED, COUNT = int(sys.argv[4]), int(sys.argv[5])
sys.argv[4:] = []
import measure_images as images                 # noqa: E402
import measure_images_apart as apart            # noqa: E402
import measure_memory as M                      # noqa: E402
from image_batches import SIDE, SIDES, tiled    # noqa: E402

R = random.Random(SEED)
POPULAR = ('qwen2_vl qwen2_5_vl qwen3_vl llava llava_next gemma3 internvl idefics3 smolvlm paligemma mllama llava_onevision '
           'mistral3 qwen3_5 glm4v lfm2_vl idefics2 gemma4 qwen3_vl_moe').split()
TARGETS = ('q_proj+v_proj', 'q_proj+k_proj+v_proj+o_proj', 'gate_proj+up_proj+down_proj')


def drawn(n):
    """A spec, how its batch is made, and how many images a text has."""
    name = R.choice(POPULAR) if R.random() < .8 else R.choice(sorted(images.MODELS))
    config, batch = images.MODELS[name]
    s = dict(precision=R.choice(['bf16', 'bf16-amp', 'bf16-amp', 'amp-bf16']),
             attn='eager' if name in images.WRITTEN_OUT else R.choice(['sdpa', 'sdpa', 'eager']), micro_batch=R.choice([1, 2, 3]),
             grad_ckpt=R.random() < .5, optimizer=R.choice(['adamw', 'adamw-fused', 'adamw-8bit', 'sgd']), padding_mask=False)
    count = 1 if name in images.ALONE or batch is tiled else R.choice([1, 1, 2])
    kind = R.choice(['lora', 'lora', 'all', 'qlora', 'qlora-all', 'full'])
    if kind != 'full':
        s.update(lora_r=R.choice([4, 8, 16]), lora_targets='all-linear' if 'all' in kind else R.choice(TARGETS),
                 lora_dropout=R.choice([0.0, 0.05]))
    if 'qlora' in kind:
        s.update(qlora=True, kbit_prepare=R.random() < .5, precision=R.choice(['bf16', 'bf16-amp']))
    spec = M.normalise(dict(s, config=config, task='image-text', seq_len=256, id='v%d-%03d-%s-%s' % (SEED, n, name, kind),
                            model=name))
    return spec, batch, count


def main():
    out, configs = sys.argv[2:4]
    for table in (images.qwen, images.glm, images.others, images.apart, images.omni, images.drawing, images.queried,
                  apart.moving, apart.windowed, apart.towerless, images.kept):
        table()
    apart.kernels_refuse_strides()
    backend = images.prepared()
    apart.ones_are_known()
    os.makedirs(configs, exist_ok=True)
    with open(out, 'a', newline='') as f:
        w = csv.DictWriter(f, ['id', 'images'] + [c for c in M.COLS if c != 'id'], restval='', extrasaction='ignore')
        w.writeheader()
        for n in range(COUNT):
            spec, batch, count = drawn(n)
            M.make_batch = lambda s, cfg, be: batch(cfg, s['micro_batch'], s['seq_len'], count, M.weight_dtype(s))
            try:
                row = M.run_spec(spec, backend)
            except Exception:                   # said, and the next one tried
                backend.peak_info = None
                traceback.print_exc()
                continue
            row.update(id=spec['id'], images=2 if batch is tiled else count, image_size=SIDES.get(spec['model'], SIDE))
            w.writerow(row)
            f.flush()
            with open(os.path.join(configs, spec['model'] + '.json'), 'w') as g:
                json.dump(json.loads(M.load_config(spec).to_json_string(use_diff=True)), g, indent=1, sort_keys=True)


if __name__ == '__main__':
    main()
