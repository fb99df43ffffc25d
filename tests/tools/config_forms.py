#!/usr/bin/env python3
"""Writes tests/accuracy/forms.tsv: parameter counts of config.json files in the forms that people write.

A development tool: nothing of the build or the tests runs it.  Run as

    HF_HUB_OFFLINE=1 python3 config_forms.py data/model_types.jsonl > tests/accuracy/forms.tsv

with transformers 5.12.1, torch 2.14.1.  A line: task, parameters, trained ones, the file; counted on the meta device by the
class that transformers' auto mapping has for the type and the task.  The forms of a type:
  nothing but the type; every key written out; one key changed, the others left out, under its own and its old name
  (attribute_map); a composite's sub config absent, empty, with its type alone, with one key.
Of the changed keys a few a type are drawn (seeded), so that the file stays small; 98 lines are seed 77's over 70 types.
221 are of two to four keys changed at once, some by their old names, over as many types (seed 424).  The 82 after them were refused or wrong, of 1,498 drawn over all types (2026-11-26): one to four
keys, or some of one or two sub configs, at once.
"""
import json
import random
import re
import signal
import sys
import warnings

import torch
import transformers as T
from transformers.initialization import no_init_weights

warnings.filterwarnings("ignore")
T.logging.set_verbosity(T.logging.CRITICAL)

AUTO = {
    "causal-lm": T.AutoModelForCausalLM, "masked-lm": T.AutoModelForMaskedLM, "seq2seq": T.AutoModelForSeq2SeqLM,
    "image-text": T.AutoModelForImageTextToText, "speech-seq2seq": T.AutoModelForSpeechSeq2Seq,
    "seq-cls": T.AutoModelForSequenceClassification, "image-cls": T.AutoModelForImageClassification,
}
DEPTH = ["num_hidden_layers", "n_layer", "num_layers", "n_layers", "encoder_layers", "decoder_layers", "num_decoder_layers",
         "num_encoder_layers"]
SIZES = re.compile(r"size|dim|head|num_|^n_|layer|vocab|bias|tie_|expert|rank|kernel|embd|width|channel|ratio|positions|inner"
                   r"|group|state|conv|use_|add_|share|norm|d_|proj|patch|window|stride|mlp|attn|dense|moe")
OTHER = re.compile(r"dropout|eps|token|_id|init|range|theta|scal|loss|coef|cache|drop|prob|dtype|alpha|temperature|rope|label"
                   r"|architectures|model_type|softcap|is_|output_")
DRAWN = 3


class TooLong(Exception):
    pass


def alarm(*_):
    raise TooLong


def count(config, task):
    """(config object, total, trained) or None where transformers refuses it"""
    signal.alarm(25)
    try:
        given = json.loads(json.dumps(config))
        cfg = T.AutoConfig.for_model(given.pop("model_type"), **given)
        if task == "seq-cls" and getattr(cfg, "pad_token_id", None) is None:
            cfg.pad_token_id = 0
        with torch.device("meta"), no_init_weights():
            model = AUTO[task].from_config(cfg, attn_implementation="eager")
        model.tie_weights()
    except (Exception, TooLong):
        return None
    finally:
        signal.alarm(0)
    ps = list(model.parameters())
    return cfg, sum(p.numel() for p in ps), sum(p.numel() for p in ps if p.requires_grad)


def emit(config, task):
    got = count(config, task)
    if got:
        print(task.replace("speech-", ""), got[1], got[2], json.dumps(config, sort_keys=True), sep="\t", flush=True)
    return got and got[0]


def changed(key, v):
    """another value for a key, or None"""
    if isinstance(v, bool):
        return not v
    if v is None:
        return 2 if re.search(r"key_value|num_kv", key) else 64 if key == "head_dim" else None
    if not isinstance(v, int) or v <= 0:
        return None
    if re.search(r"layers|n_layer", key):
        return v // 2 if v > 2 else v + 1
    if re.search(r"vocab|position", key):
        return v + 64
    if re.search(r"head|group|expert|top_?k|key_value", key):
        return v // 2 if v > 1 else 2
    return v * 2


def keys_of(config):
    return [k for k, v in config.items() if not isinstance(v, dict) and SIZES.search(k) and not OTHER.search(k)]


def forms(kind, entry, task, draw):
    cfg = emit({"model_type": kind}, task)
    if not cfg:
        return
    full = cfg.to_dict()
    base = {"model_type": kind, **{k: 2 for k in DEPTH if k in entry.get("defaults", {})}}
    old = {}
    for name, real in (type(cfg).attribute_map or {}).items():
        old.setdefault(real, []).append(name)
    keys = [k for k in keys_of(full) if changed(k, full[k]) is not None]
    for k in draw.sample(keys, min(DRAWN, len(keys))) + [k for k in keys if k in old]:
        emit({**base, k: changed(k, full[k])}, task)
        for name in old.get(k, []):
            emit({**{a: b for a, b in base.items() if a != k}, name: changed(k, full[k])}, task)
    for name in getattr(type(cfg), "sub_configs", None) or {}:
        sub = full.get(name)
        if not isinstance(sub, dict):
            continue
        emit({"model_type": kind, name: {}}, task)
        if sub.get("model_type"):
            emit({"model_type": kind, name: {"model_type": sub["model_type"]}}, task)
        keys = [k for k in keys_of(sub) if changed(k, sub[k]) is not None]
        for k in draw.sample(keys, min(DRAWN, len(keys))):
            emit({"model_type": kind, name: {k: changed(k, sub[k])}}, task)


def main():
    signal.signal(signal.SIGALRM, alarm)
    draw = random.Random(1)
    print("task\ttotal_params\ttrainable_params\tconfig")
    for line in open(sys.argv[1]):
        kind, entry = line.rstrip("\n").split("\t")
        entry = json.loads(entry)
        for task in [t for t in AUTO if t in entry.get("architectures", {})][:1]:
            forms(kind, entry, task, draw)


if __name__ == "__main__":
    main()
