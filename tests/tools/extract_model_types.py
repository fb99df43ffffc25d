#!/usr/bin/env python3
"""Writes data/model_types.jsonl: what a config.json may leave out, per transformers model type.

A development tool: nothing of the build or the tests runs it.  Run as

    HF_HUB_OFFLINE=1 python3 extract_model_types.py > data/model_types.jsonl

with transformers 5.12.1 (the configuration classes are strict dataclasses there), torch 2.14.1, Python 3.14.

One line per type, sorted: type, a tab, and one JSON object with
  defaults       the class's own field defaults, before __post_init__ computes values from others; null means "computed or off".
                 Beyond the fields: tie_word_embeddings and num_labels as the default object has them (num_labels only when not
                 2, the library's default), and for a sub config that is absent as a whole, the values in which the default
                 one differs from its own type's defaults.
  aliases        other name -> the name to look up, both of which a config.json may use (attribute_map; the commonly used
                 name wins: n_embd -> hidden_size), and old keys that __post_init__ still takes (n_embed -> hidden_size)
  architectures  task -> class name, first of the auto mapping; "base" is the model without a head
  merged         sub configs over whose given keys the class lays its own defaults (_default_text_config_kwargs)
  sub_configs    key -> model type of the sub config the class makes by default ("" where it has none: its defaults then
                 stand in the parent's under that key)
Left out: token ids, label maps, initializers, epsilons, rotary parameters, loss coefficients, generation and output settings.
"""
import contextlib
import dataclasses
import inspect
import io
import json
import re
import sys
import warnings

import transformers
from transformers import CONFIG_MAPPING
from transformers.configuration_utils import PreTrainedConfig
from transformers.models.auto import modeling_auto as auto

warnings.filterwarnings("ignore")
transformers.logging.set_verbosity(transformers.logging.CRITICAL)

MAPPINGS = {
    "base": auto.MODEL_MAPPING_NAMES,
    "causal-lm": auto.MODEL_FOR_CAUSAL_LM_MAPPING_NAMES,
    "masked-lm": auto.MODEL_FOR_MASKED_LM_MAPPING_NAMES,
    "seq2seq": auto.MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING_NAMES,
    "seq-cls": auto.MODEL_FOR_SEQUENCE_CLASSIFICATION_MAPPING_NAMES,
    "image-cls": auto.MODEL_FOR_IMAGE_CLASSIFICATION_MAPPING_NAMES,
    "speech-seq2seq": auto.MODEL_FOR_SPEECH_SEQ_2_SEQ_MAPPING_NAMES,
    "image-text": auto.MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING_NAMES,
    "ctc": {t: auto.MODEL_FOR_CTC_MAPPING_NAMES[t]
            for t in ("wav2vec2", "hubert", "unispeech", "unispeech-sat", "data2vec-audio", "wavlm", "sew", "wav2vec2-conformer",
                      "wav2vec2-bert")},
}
# the name a look-up uses where two exist
STANDARD = ["vocab_size", "hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads",
            "num_key_value_heads", "head_dim", "max_position_embeddings", "hidden_act", "tie_word_embeddings"]
DROP = re.compile(
    r"(token_ids?|token_index|(bos|eos|pad|unk|mask)_index|tok_id|label2id|id2label|label_ids?|initializer\w*|init_(std|scale|range|weight|fn|method)\w*"
    r"|\w*_init(_\w+)?|\w*(_eps|_epsilon|_coef|_coefficient|_temperature|_theta|_momentum)|\w*_loss(_\w+)?|\w*loss_\w*"
    r"|use_cache|rope_parameters|rope_scaling|transformers_version|architectures|dtype|torch_dtype|output_(?!dim$)\w+"
    r"|return_dict|problem_type|chunk_size_feed_forward|mask_(time|feature)_\w+|num_beams|max_length|no_repeat_ngram_size"
    r"|temperature|top_p|forced_\w+|suppress_tokens|begin_suppress_tokens|task_specific_params|decoder_start_token_id"
    r"|prefix|pretraining_tp|keys_to_ignore\w*|_name_or_path|init_xavier_std|layer_scale_init_value|dilation_note)$")
# what __post_init__ makes of null where nothing else in the file says it, and sub configs that a family reads by itself
COMPUTED = {"textnet": ("conv_layer_kernel_sizes", "conv_layer_strides"), "pp_lcnet": ("block_configs",)}
WHOLE = {"modernvbert": ("text_config",)}
BASE = {f.name for f in dataclasses.fields(PreTrainedConfig)} - {"is_encoder_decoder"}


def small(v):
    """numbers, booleans, strings, null, and lists and dicts of at most 64 of those"""
    if v is None or isinstance(v, (bool, int, str)):
        return True
    if isinstance(v, float):
        return v == v and abs(v) != float("inf")
    if isinstance(v, (list, tuple)):
        return len(v) <= 64 and all(small(x) for x in v)
    if isinstance(v, dict):
        return len(v) <= 64 and all(isinstance(k, str) and small(x) for k, x in v.items())
    return False


def keep(name, v):
    return name not in BASE and not re.search(r"(^|_)" + DROP.pattern, name) and not isinstance(v, PreTrainedConfig) and small(v)


def raw_defaults(cls):
    out = {}
    if "__init__" in cls.__dict__ and not getattr(cls.__init__, "__wrapped__", None) and not dataclasses.is_dataclass(cls):
        for p in inspect.signature(cls.__init__).parameters.values():
            if p.default is not inspect.Parameter.empty:
                out[p.name] = p.default
    else:
        for f in dataclasses.fields(cls):
            if f.default is not dataclasses.MISSING:
                out[f.name] = f.default
            elif f.default_factory is not dataclasses.MISSING:
                out[f.name] = f.default_factory()
    if out.get("is_encoder_decoder") is False:
        del out["is_encoder_decoder"]
    return {k: v for k, v in out.items() if keep(k, v)}


def make(cls, **kw):
    try:
        with contextlib.redirect_stderr(io.StringIO()), contextlib.redirect_stdout(io.StringIO()):
            return cls(**kw)
    except Exception:
        return None


def sub_classes(cls, obj):
    """key -> (class, object or None) of the sub configs; AutoConfig stands for whatever the default object made"""
    out = {}
    for key, sub in (getattr(cls, "sub_configs", None) or {}).items():
        v = getattr(obj, key, None)
        if isinstance(v, PreTrainedConfig):
            out[key] = (type(v), v)
        elif sub is not None and inspect.isclass(sub) and issubclass(sub, PreTrainedConfig):
            out[key] = (sub, None)
    return out


def aliases_of(cls, fields, obj):
    out = {}
    for standard, real in (cls.attribute_map or {}).items():
        if standard in STANDARD and real in STANDARD:
            continue  # a remark that two sizes are equal, not another name
        if real in STANDARD or (standard not in STANDARD and (real in fields or standard not in fields)):
            out[standard] = real
        elif real not in out or STANDARD.index(standard) < STANDARD.index(out[real]):
            out[real] = standard
    out = {k: out.get(v, v) for k, v in out.items() if keep(k, None)}
    # keys of older files that __post_init__ renames: found by giving them an odd value and looking where it went
    source = inspect.getsource(cls) if obj is not None else ""
    for old in set(re.findall(r"kwargs\.pop\(\"(\w+)\"", source)) - set(fields) - set(out):
        if re.search(r"(_dict|_config|_theta|_base|rope_scaling|num_labels|out_features|out_indices)$", old):
            continue
        # small and odd, then again with another value, so that no default is taken for it
        got = [make(cls, **{old: v}) for v in (7, 13)]
        if None in got:
            continue
        for f in fields:
            if getattr(got[0], f, None) == 7 and getattr(got[1], f, None) == 13:
                out[old] = f
    return out


def differences(obj, cls):
    """what a default sub config says that its own type's default does not"""
    plain = make(cls)
    if plain is None:
        return {}
    out = {}
    for f in dataclasses.fields(cls):
        v = getattr(obj, f.name, None)
        if keep(f.name, v) and v != getattr(plain, f.name, None):
            out[f.name] = v
    again = make(cls, **out)  # what the type would compute from these is not what this class says: head_dim of mistral3
    for f in dataclasses.fields(cls) if again is not None else ():
        v = getattr(obj, f.name, None)
        if keep(f.name, v) and v != getattr(again, f.name, None):
            out[f.name] = v
    if getattr(obj, "vision_use_head", True) is False:  # no field of its class, yet read by SigLIP's model
        out["vision_use_head"] = False
    return out


def entry(cls, queue):
    obj = make(cls)
    defaults = raw_defaults(cls)
    subs, merged = {}, {}
    if isinstance(getattr(obj, "tie_word_embeddings", None), bool):
        defaults["tie_word_embeddings"] = obj.tie_word_embeddings
    for key in COMPUTED.get(cls.model_type, ()):
        defaults[key] = getattr(obj, key)
    defaults.pop("num_labels", None)  # Pvt's field says 1000, its object 2
    if obj is not None and getattr(obj, "num_labels", 2) != 2:
        defaults["num_labels"] = obj.num_labels
    for key, (sub, value) in sub_classes(cls, obj).items():
        kind = sub.model_type or ""
        subs[key] = kind
        if kind and kind != cls.model_type:
            queue.append(sub)
            inner = differences(value, sub) if value is not None else {}
            if key in WHOLE.get(cls.model_type, ()):
                inner = {k: v for k, v in raw_defaults(sub).items() if v is not None}
            given = getattr(cls, f"_default_{key}_kwargs", None)
            if given:
                # said, whether or not the type would come to the same value: Voxtral's head_dim
                inner.update({k: v for k, v in given.items() if keep(k, v)})
                merged[key] = True
        else:
            inner = raw_defaults(sub)
        if inner:
            defaults[key] = inner
        elif defaults.get(key, 0) is None:
            del defaults[key]
    fields = [f.name for f in dataclasses.fields(cls)]
    return {"defaults": defaults, "aliases": aliases_of(cls, fields, obj), "sub_configs": subs, "merged": merged}


def main():
    wanted = sorted({t for task, m in MAPPINGS.items() if task != "base" for t in m})
    queue, seen, lines = [], {}, {}
    for t in wanted:
        try:
            queue.append(CONFIG_MAPPING[t])
            seen[CONFIG_MAPPING[t]] = t
        except Exception as e:
            print("SKIP", t, e, file=sys.stderr)
    done = set()
    while queue:
        cls = queue.pop(0)
        if cls in done:
            continue
        done.add(cls)
        names = [t for t in wanted if seen.get(cls) == t] or [cls.model_type]
        if cls.model_type and cls.model_type not in names:
            names.append(cls.model_type)
        try:
            e = entry(cls, queue)
        except Exception as ex:
            print("SKIP", names, type(ex).__name__, ex, file=sys.stderr)
            continue
        for t in names:
            if t in lines and cls not in seen:
                continue
            arch = {task: (m[t] if isinstance(m[t], str) else m[t][0]) for task, m in MAPPINGS.items() if t in m}
            lines[t] = {k: v for k, v in dict(e, architectures=arch).items() if v or k in ("defaults", "aliases")}
    for t in sorted(lines):
        sys.stdout.write(t + "\t" + json.dumps(lines[t], sort_keys=True, separators=(",", ":"), ensure_ascii=True) + "\n")


main()
