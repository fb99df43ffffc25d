#!/usr/bin/env python3
"""What tests/unit/test_parts_*.c and test_saved_*.c restate as formulas: a model's parameters, and what one of its layers
leaves for its backward pass.

    model_parts.py parts CONFIG.json TASK
        named_parameters() of the class that transformers picks, on the meta device: name, shape, and "still" where it never
        trains; "idle" where a real step on the CPU left it without a gradient
    PYTHONPATH=EMULATION model_parts.py saved CONFIG.json TASK [knob=value ...]
        the tensors that the middle one of three layers holds at the end of a forward pass of two sequences of 56 tokens:
        module, operation, shape, type, and the nodes that hold it (EMULATION: a folder with measure_memory.py)

A development tool: nothing of the build or the tests runs it."""
import contextlib
import json
import sys
import tempfile

import torch
from transformers import AutoConfig
from transformers.initialization import no_init_weights
from transformers.models.auto import modeling_auto

MAPPINGS = {"causal-lm": "MODEL_FOR_CAUSAL_LM_MAPPING", "masked-lm": "MODEL_FOR_MASKED_LM_MAPPING",
            "seq2seq": "MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING", "seq-cls": "MODEL_FOR_SEQUENCE_CLASSIFICATION_MAPPING",
            "image-cls": "MODEL_FOR_IMAGE_CLASSIFICATION_MAPPING"}


def read(path):
    with open(path) as f:
        keys = json.load(f)
    return keys, AutoConfig.for_model(keys["model_type"], **{k: v for k, v in keys.items() if k != "model_type"})


def idle(cls, config, task):
    """Names of what trains and gets no gradient."""
    model = cls._from_config(config, attn_implementation="eager").float().train()
    ids = torch.randint(3, 90, (2, 24))
    if task == "image-cls":
        size = config.image_size if isinstance(config.image_size, int) else config.image_size[0]
        batch = dict(pixel_values=torch.randn(2, 3, size, size), labels=torch.zeros(2, dtype=torch.long))
    else:
        batch = dict(input_ids=ids, labels=torch.zeros(2, dtype=torch.long) if task == "seq-cls" else ids)
    model(**batch).loss.backward()
    return {n for n, p in model.named_parameters() if p.requires_grad and p.grad is None}


def parts(path, task):
    _, config = read(path)
    if task in ("seq-cls", "image-cls"):
        config.num_labels = 2
    cls = getattr(modeling_auto, MAPPINGS[task])[type(config)]
    with torch.device("meta"), no_init_weights(), contextlib.redirect_stdout(sys.stderr):
        model = cls._from_config(config, attn_implementation="eager")
    model.tie_weights()
    without = idle(cls, config, task)
    for name, p in model.named_parameters():
        print(name, tuple(p.shape), "" if p.requires_grad else "still", "idle" if name in without else "")


def saved(path, task, knobs):
    import measure_memory
    keys, _ = read(path)
    spec = dict(config=keys, task=task, micro_batch=2, seq_len=0 if task == "image-cls" else 56, optimizer="sgd", id="layer")
    spec.update({k.replace("-", "_"): json.loads(v) if v in ("true", "false") or v.isdigit() else v
                 for k, v in (knob.split("=", 1) for knob in knobs)})
    with tempfile.TemporaryDirectory() as folder:
        with open(folder + "/spec.jsonl", "w") as f:
            f.write(json.dumps(spec) + "\n")
        measure_memory.main(["--specs", folder + "/spec.jsonl", "--out", folder + "/out.csv", "--dump-dir", folder])
        with open(folder + "/layer.json") as f:
            for t in json.load(f)["block"]:
                print(t["module"], t["made_by"], tuple(t["shape"]), t["dtype"], ", ".join(t["saved_by"]))


if __name__ == "__main__":
    if sys.argv[1] == "parts":
        parts(*sys.argv[2:4])
    else:
        saved(sys.argv[2], sys.argv[3], sys.argv[4:])
