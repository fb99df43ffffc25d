#!/usr/bin/env python3
"""Writes data/module_paths.tsv: what transformers calls the modules of each model type.

    module_paths.py data/model_types.jsonl > data/module_paths.tsv

One line per type: its name, a tab, and the modules that own parameters, in the order of named_modules(), of the default
config built on the meta device.  Types whose decoder is a class of its own beside the whole (BART's) have a second line,
NAME:causal-lm; classifiers of texts whose first line is another task's have one, NAME:seq-cls, as have those of images
(NAME:image-cls).  Children are in parentheses behind their parent, siblings divided by commas; a *
stands for the number of a ModuleList's element.  Modules that other configs of the type have (VARIANTS) follow its own.  Types with the same modules share a line (names joined by blanks).
A ? before the modules marks the types of APPROXIMATE.
"""
import contextlib, json, signal, sys, warnings

import torch, transformers
from transformers.initialization import no_init_weights

warnings.filterwarnings("ignore")
transformers.logging.set_verbosity_error()
# types of which the recording is known not to tell some modules apart: names taken from their lines are announced
APPROXIMATE = {"dia", "evolla", "moshi", "perceiver", "reformer", "switch_transformers", "zamba", "zamba2"}
ORDER = ("image-text", "seq2seq", "speech-seq2seq", "causal-lm", "masked-lm", "seq-cls", "image-cls", "ctc", "base")
# configs besides the default one that have modules which it has not, as people publish them; {} stands for the default one
VARIANTS = {
    "t5": [{}, {"feed_forward_proj": "gated-gelu"}], "longt5": [{}, {"feed_forward_proj": "gated-gelu"}],
    "udop": [{}, {"feed_forward_proj": "gated-gelu"}],
    "opt": [{}, {"word_embed_proj_dim": 64}],
    "falcon": [{}, {"new_decoder_architecture": True}, {"parallel_attn": False}],
    "deepseek_v3": [{}, {"q_lora_rank": None}], "deepseek_v2": [{}, {"q_lora_rank": None}],
    "stablelm": [{}, {"qk_layernorm": True}], "cohere": [{}, {"use_qk_norm": True}], "glm4_moe": [{}, {"use_qk_norm": True}],
    "deberta": [{}, {"relative_attention": True, "pos_att_type": ["p2c", "c2p"]}],
    "deberta-v2": [{}, {"relative_attention": True, "pos_att_type": ["p2c", "c2p"], "norm_rel_ebd": "layer_norm",
                        "conv_kernel_size": 3}, {"legacy": False}],
    "granitemoeshared": [{}, {"shared_intermediate_size": 64}],
    "qwen3_moe": [{}, {"mlp_only_layers": [0]}], "qwen2_moe": [{}, {"mlp_only_layers": [0]}],
    "dinov2": [{}, {"use_swiglu_ffn": True}], "dinov2_with_registers": [{}, {"use_swiglu_ffn": True}],
    "beit": [{"use_mean_pooling": False, "use_absolute_position_embeddings": True}, {}],
    "data2vec-vision": [{"use_mean_pooling": False, "use_absolute_position_embeddings": True}, {}],
}
for t in ("wav2vec2", "hubert", "unispeech", "unispeech-sat", "sew"):
    VARIANTS[t] = [{}, {"feat_extract_norm": "layer"}]
for t in ("wav2vec2", "unispeech-sat", "wavlm", "data2vec-audio"):
    VARIANTS[t] = VARIANTS.get(t, [{}, {"feat_extract_norm": "layer"}]) + [{"add_adapter": True, "output_hidden_size": 512}]
# which have no letters of their own
for t in ("wav2vec2-conformer", "wav2vec2-bert"):
    VARIANTS[t] = [dict(keys, vocab_size=32) for keys in ({}, {"position_embeddings_type": "relative"})]
    VARIANTS[t].append({"vocab_size": 32, "add_adapter": True, "output_hidden_size": 512})
VARIANTS["wav2vec2-bert"][-1]["use_intermediate_ffn_before_adapter"] = True
VARIANTS["wav2vec2-conformer"].append({"feat_extract_norm": "layer", "vocab_size": 32})
VARIANTS["wav2vec2"].append({"feat_extract_norm": "layer", "do_stable_layer_norm": True, "adapter_attn_dim": 16})
for t in ("bert", "roberta", "xlm-roberta", "camembert", "electra", "ernie", "bert-generation"):
    VARIANTS[t] = [{}, {"is_decoder": True, "add_cross_attention": True}]


def paths(model):
    """Dotted paths, numbers of ModuleLists as *; each once."""
    seen = {}

    def walk(m, path, listed):
        if any(True for _ in m.parameters(recurse=False)) and path:
            seen.setdefault(path)
        for name, child in m.named_children():
            at = "*" if isinstance(m, torch.nn.ModuleList) else name
            walk(child, f"{path}.{at}" if path else at, listed)
    walk(model, "", False)
    return list(seen)


def tree(ps):
    root = {}
    for p in ps:
        node = root
        for word in p.split("."):
            node = node.setdefault(word, {})
    def show(node):
        return ",".join(k + (f"({show(v)})" if v else "") for k, v in node.items())
    return show(root)


def build(arch, cls, **keys):
    cfg = cls(**keys)
    for sub in (cfg, getattr(cfg, "text_config", None), getattr(cfg, "vision_config", None)):
        if sub is None:
            continue
    # the library tells of its own docstrings on standard output
    with torch.device("meta"), no_init_weights(), contextlib.redirect_stdout(sys.stderr):
        return arch._from_config(cfg) if hasattr(arch, "_from_config") else arch(cfg)


def listed(name, word):
    """The class's modules; None where the library cannot build it."""
    arch = getattr(transformers, word, None)
    try:
        signal.alarm(60)
        found = [p for keys in VARIANTS.get(name, [{}]) for p in paths(build(arch, arch.config_class, **keys))]
        signal.alarm(0)
        return tree(found)
    except Exception as e:
        signal.alarm(0)
        print(f"{name}: {word}: {type(e).__name__}: {str(e)[:100]}", file=sys.stderr)
        return None


def main():
    rows = {}

    def add(text, name):
        if name.split(":")[0] in APPROXIMATE:
            text = "?" + text
        rows.setdefault(text, []).append(name)

    for line in open(sys.argv[1]):
        name, data = line.rstrip("\n").split("\t")
        archs = json.loads(data).get("architectures", {})
        keys = [k for k in ORDER if k in archs] + [k for k in archs if k not in ORDER]
        whole = next((text for text in (listed(name, archs[k]) for k in keys) if text), None)
        if whole:
            add(whole, name)
        for task in ("causal-lm", "seq-cls", "image-cls"):
            own = task in archs and (task != "causal-lm" or "seq2seq" in archs or "speech-seq2seq" in archs)
            part = listed(name, archs[task]) if own else None
            if part and part != whole:
                add(part, f"{name}:{task}")
    for text, names in sorted(rows.items(), key=lambda r: r[1][0]):
        print(" ".join(names), text, sep="\t")


main()
