#!/usr/bin/env python3
"""Restates measured rows as facts of this repository, so that a fresh clone tests its accuracy.

    restate.py ORACLE_FOLDER OOMPLAN

ORACLE_FOLDER holds truth/ (peaks*.csv, params.csv, runs/, configs/) and megatron/.  Writes into tests/accuracy/:
peaks.csv, peaks_pairwise.csv, peaks_qlora.csv, params.csv (what was run and what was measured), configs/ (of each
config the keys that differ from its type's defaults in data/model_types.jsonl), golden.csv, simumax.csv (Megatron
launches), saved/ (tensors held between forward and backward).  Columns that nobody reads are left out; configs that differ in nothing but what the row's own num_layers
says are one, where the program prices them alike."""
import csv
import hashlib
import json
import os
import subprocess
import sys

SOURCE, PROGRAM = sys.argv[1:3]
ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), '..', '..')
OUT = os.path.join(ROOT, 'tests', 'accuracy')
# nothing of a step follows from these
IDLE = ('_name_or_path', 'transformers_version', 'id2label', 'label2id', 'auto_map', 'use_cache', 'problem_type',
        'initializer_range', 'initializer_factor', 'init_std', 'bos_token', 'eos_token', 'quantization_config',
        '_source', 'task_specific_params', 'torch_dtype', 'dtype', 'layer_norm_eps', 'rms_norm_eps', 'layer_norm_epsilon')
DROPPED = ('seconds', 'notes', 'n_events', 'sdpa_backends', 'backend', 'family', 'pk_op', 'pk_module', 'source', 'path', 'gpu_how',
           'n_gpus_how', 'recorded', 'commit', 'container', 'mcore_version', 'vocab_how', 'measured_how', 'why_not', 'software')


def defaults():
    types = {}
    with open(os.path.join(ROOT, 'data', 'model_types.jsonl')) as f:
        for line in f:
            name, text = line.split('\t', 1)
            types[name] = json.loads(text)['defaults']
    return types


TYPES = defaults()


def reduced(config):
    """The keys that say something: not a default of the type, and not idle."""
    usual = TYPES.get(config.get('model_type'), {})
    out = {}
    for key, value in config.items():
        if key in IDLE or key.endswith('token_id') or key.endswith('_token_index'):
            continue
        if isinstance(value, dict):
            value = reduced(value)
            if not value:
                continue
        elif key in usual and usual[key] == value and key != 'model_type':
            continue
        out[key] = value
    labels = config.get('id2label')
    if labels and len(labels) != 2:
        out['num_labels'] = len(labels)
    return out


DEPTH = ('num_hidden_layers', 'n_layer', 'n_layers', 'num_layers', 'encoder_layers', 'decoder_layers', 'num_decoder_layers',
         'layer_types', 'num_encoder_layers')


def price(text, row):
    """What the program makes of the row with this config."""
    knobs = [('--%s=%s' % (k.replace('_', '-'), row[k])) for k in
             ('num_layers', 'task', 'micro_batch', 'seq_len', 'precision', 'attn', 'tgt_len', 'image_size', 'num_labels')
             if row.get(k)]
    run = subprocess.run([PROGRAM, 'estimate', '--model', '-', '--json'] + knobs, input=text.encode(),
                         stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    return json.loads(run.stdout)['estimate'] if run.returncode < 2 else run.returncode


def without_depth(config, row):
    text = json.dumps(config, indent=1, sort_keys=True) + '\n'
    shallow = {k: v for k, v in config.items() if k not in DEPTH}
    if row and row.get('num_layers') and len(shallow) < len(config):
        other = json.dumps(shallow, indent=1, sort_keys=True) + '\n'
        if price(text, row) == price(other, row):
            return other
    return text


def write_config(path, stem, known, row=None):
    with open(path) as f:
        config = json.load(f)
    # a run's file holds its specification beside the config
    text = without_depth(reduced(config.get('config', config)), row)
    mark = hashlib.sha256(text.encode()).hexdigest()
    if mark not in known:
        name = stem
        if name in known.values():
            name = '%s-%s' % (stem, mark[:6])
        with open(os.path.join(OUT, 'configs', name + '.json'), 'w') as f:
            f.write(text)
        known[mark] = name
    return known[mark]


def table(path, name, known):
    with open(path, newline='') as f:
        rows = list(csv.DictReader(f))
    # of a Megatron launch the family is what is built
    columns = [c for c in rows[0] if any(r[c] for r in rows) and
               (c not in DROPPED or c == 'family' and 'tp' in rows[0])]
    with open(os.path.join(OUT, name), 'w', newline='') as f:
        w = csv.DictWriter(f, columns, lineterminator='\n', extrasaction='ignore')
        w.writeheader()
        for row in rows:
            truth = os.path.dirname(path)
            if 'model' in row and 'precision' in row and 'task' in row:
                own = os.path.join(truth, 'runs', row['id'] + '.json')
                shared = os.path.join(truth, 'configs', row['model'] + '.json')
                row['model'] = write_config(own if os.path.exists(own) else shared, row['model'], known, row)
            elif 'config' in row:
                stem = os.path.splitext(os.path.basename(row['config']))[0]
                row['config'] = 'configs/%s.json' % write_config(os.path.join(truth, row['config']), stem, known)
            w.writerow(row)
    return len(rows)


def saved_lists(folder):
    """Tensors held between forward and backward: where, made by what, bytes.  Lists measured anew here stay."""
    n = 0
    for name in sorted(os.listdir(folder)):
        out = os.path.join(OUT, 'saved', name)
        if not name.endswith('.json') or os.path.exists(out) and 'shape' in open(out).read():
            continue
        with open(os.path.join(folder, name)) as f:
            d = json.load(f)
        rows = {part: ['  ' + json.dumps({k: t[k] for k in ('module', 'made_by', 'bytes')}) for t in d[part]]
                for part in ('block', 'outside_blocks')}
        with open(out, 'w') as f:
            f.write('{\n "spec": %s,\n "total_bytes": %d,\n "block": [\n%s\n ],\n "outside_blocks": [\n%s\n ]\n}\n' % (
                json.dumps(d['spec']), d['total_bytes'], ',\n'.join(rows['block']), ',\n'.join(rows['outside_blocks'])))
        n += 1
    return n


def main():
    os.makedirs(os.path.join(OUT, 'configs'), exist_ok=True)
    known = {}
    truth = os.path.join(SOURCE, 'truth')
    for name in ('peaks.csv', 'peaks_pairwise.csv', 'peaks_qlora.csv', 'params.csv'):
        print(name, table(os.path.join(truth, name), name, known))
    print('golden.csv', table(os.path.join(SOURCE, 'megatron', 'golden_visible.csv'), 'golden.csv', known))
    print('simumax.csv', table(os.path.join(SOURCE, 'megatron', 'simumax_visible.csv'), 'simumax.csv', known))
    print('saved', saved_lists(os.path.join(truth, 'saved_tensors')))
    print('configs', len(known))


main()
