#!/usr/bin/env python3
"""What transformers' auto classes can do, one row per class, for data/class_flags.csv.

    class_flags.py [LIGER/monkey_patch.py] > data/class_flags.csv

Attributes of the classes are read as transformers has them installed (class_flags.csv: 5.12.1); nothing is
downloaded and no weight is made.  Normalisation over the batch is found by building the class on the meta device
from its default configuration.  Liger's list is read from its source where that is given, else kept from the
file beside data/; which models overflow in fp16 is known from threads alone and stands here.
"""
import contextlib
import csv
import importlib
import os
import re
import sys
import warnings

warnings.filterwarnings("ignore")
os.environ["TRANSFORMERS_VERBOSITY"] = "error"

import torch
from transformers.models.auto import modeling_auto as auto

TASKS = [
    ("causal-lm", auto.MODEL_FOR_CAUSAL_LM_MAPPING_NAMES),
    ("masked-lm", auto.MODEL_FOR_MASKED_LM_MAPPING_NAMES),
    ("seq2seq", auto.MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING_NAMES),
    ("image-cls", auto.MODEL_FOR_IMAGE_CLASSIFICATION_MAPPING_NAMES),
    ("image-text", auto.MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING_NAMES),
    ("speech", auto.MODEL_FOR_SPEECH_SEQ_2_SEQ_MAPPING_NAMES),
    ("ctc", {t: auto.MODEL_FOR_CTC_MAPPING_NAMES[t]
             for t in ("data2vec-audio", "hubert", "sew", "unispeech", "unispeech-sat", "wav2vec2", "wav2vec2-bert",
                       "wav2vec2-conformer", "wavlm")}),
]
# trained in bf16, activations pass 65504: huggingface/transformers#4586 #11461 #14189 #12225 #36822 #39972
OVERFLOWS = re.compile(r"(m|um|long)?t5|switch_transformers|pegasus|gemma2|gemma3n?(_text)?")
# axolotl's CutCrossEntropyPlugin (integrations/cut_cross_entropy/README.md, 067b021c8), which has Apple's five too
CUT = set("""afmoe apertus arcee cohere cohere2 cohere2_moe deepseek_v2 deepseek_v3 deepseek_v4
exaone4 exaone4_5 exaone_moe gemma gemma2 gemma3 gemma3_text gemma3n gemma3n_text
gemma4 gemma4_text gemma4_unified gemma4_unified_text glm glm4 glm4_moe glm4_moe_lite glm46v
glm4v glm4v_moe glm_image glm_moe_dsa gpt_oss granite granitemoe granitemoehybrid granitemoeshared
hunyuan_v1_dense hunyuan_v1_moe internvl kimi_linear lfm2 lfm2_moe lfm2_vl llama llama4
llama4_text llava minimax minimax_m2 ministral ministral3 mistral mistral3 mistral4
mixtral mllama nemotron_h olmo olmo2 olmo3 olmoe phi phi3
phi4_multimodal qwen2 qwen2_5_vl qwen2_moe qwen2_vl qwen3 qwen3_5 qwen3_5_text qwen3_5_moe
qwen3_5_moe_text qwen3_moe qwen3_next qwen3_vl qwen3_vl_moe seed_oss smollm3 step3p5 step3p7
voxtral""".split())
HERE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../data/class_flags.csv")


def liger_types():
    """Pairs (task or None, type) that Liger patches."""
    if len(sys.argv) > 1:
        text = open(sys.argv[1]).read()
        table = text[text.index("MODEL_TYPE_TO_APPLY_LIGER_FN"):]
        return {(None, t) for t in re.findall(r'"([a-z0-9_-]+)":\s*apply_liger', table)}
    if not os.path.exists(HERE):
        return set()
    with open(HERE) as f:
        return {(r["task"], r["model_type"]) for r in csv.DictReader(f) if r["liger"] == "1"}


def batch_norm(cls, task):
    """Whether a module of the class normalises over the batch; None: it cannot be built."""
    try:
        with torch.device("meta"):
            model = cls(cls.config_class(vocab_size=32) if task == "ctc" else cls.config_class())
    except Exception:
        return None
    return any("BatchNorm" in type(m).__name__ for m in model.modules())


def rows():
    liger = liger_types()
    for task, names in TASKS:
        for kind, cls_name in sorted(names.items()):
            cls_name = cls_name if isinstance(cls_name, str) else cls_name[0]
            try:
                cls = getattr(importlib.import_module("transformers"), cls_name)
            except Exception:
                continue
            yield {
                "task": task,
                "model_type": kind,
                "class": cls_name,
                "checkpointing": int(bool(getattr(cls, "supports_gradient_checkpointing", False))),
                "sdpa": int(bool(getattr(cls, "_supports_sdpa", False))),
                "flash": int(bool(getattr(cls, "_supports_flash_attn", False))),
                "wraps": int(bool(getattr(cls, "_no_split_modules", None))),
                "liger": int((None, kind) in liger or (task, kind) in liger),
                "batchnorm": int(bool(batch_norm(cls, task))) if task in ("image-cls", "ctc") else 0,
                "fp16_overflow": int(bool(OVERFLOWS.fullmatch(kind))),
                "cut": int(kind in CUT and task in ("causal-lm", "image-text", "speech")),
            }


def main():
    with contextlib.redirect_stdout(sys.stderr):    # transformers complains on stdout
        found = list(rows())
    out = csv.DictWriter(sys.stdout, found[0].keys(), lineterminator="\n")
    out.writeheader()
    out.writerows(found)


main()
