"""The questions that judge_plans.py asks: three grids of models, cards and set-ups, and draws from them.

The first grid is the one that the search was made with; nothing of the others was looked at while it was written."""

import json
import os
import random

HERE = os.path.dirname(os.path.abspath(__file__))
CONFIGS = os.path.join(HERE, "..", "accuracy", "configs")

MODELS = """BART-base BERT-large BLOOM-560M DeBERTa-v3-base GPT-2-xl Gemma-2-2B Gemma-7B
Gemma-3-12B-text Granite Llama-2-70B Llama-2-7B Llama-3.1-8B Llama-3.2-1B Llama-3.2-3B Mamba-2.8B
Mistral-7B-v0.3 Mixtral-8x7B OLMo-2-7B OLMoE-1B-7B OPT-13B OPT-350M Phi-3-mini Phi-4 Pythia-12B
Pythia-1.4B Qwen2-MoE Qwen2.5-14B Qwen2.5-7B Qwen2.5-0.5B RoBERTa-large SmolLM2-360M StarCoder2-15B
Swin-B T5-11B T5-base ViT-L-16""".split()
# name, compute capability (0: not NVIDIA's), maker
CARDS = {"T4": (7.5, "nvidia"), "V100-SXM2-32GB": (7.0, "nvidia"), "RTX-3060-12GB": (8.6, "nvidia"),
         "RTX-3090": (8.6, "nvidia"), "RTX-4090": (8.9, "nvidia"), "A10G": (8.6, "nvidia"),
         "L4": (8.9, "nvidia"), "A100-SXM4-40GB": (8.0, "nvidia"), "A100-SXM4-80GB": (8.0, "nvidia"),
         "H100-SXM5-80GB": (9.0, "nvidia"), "RTX-5090": (12.0, "nvidia"), "MI300X": (0, "amd")}
GPUS = (1, 2, 4, 8)
SETUPS = {
    "default": {},
    "fp32": {"precision": "fp32"},
    "amp": {"precision": "amp-bf16"},
    "amp-fp16": {"precision": "amp-fp16"},
    "16-bit": {"precision": "bf16", "grad-ckpt": "full"},
    "8-bit": {"precision": "amp-bf16", "optimizer": "adamw-8bit"},
    "eager": {"precision": "amp-bf16", "attn": "eager"},
    "lora": {"precision": "bf16-amp", "lora-r": "16"},
    "qlora": {"precision": "bf16-amp", "lora-r": "16", "qlora": "true", "kbit-prepare": "true"},
    "zero": {"precision": "amp-bf16", "engine": "deepspeed", "zero": "2"},
    "fsdp2": {"precision": "amp-bf16", "engine": "fsdp2", "zero": "3"},
    "fsdp1-lora": {"precision": "bf16", "engine": "fsdp1", "zero": "3", "lora-r": "16"},
}
# where a set-up needs several GPUs or adapters need text
MANY = {"zero", "fsdp2", "fsdp1-lora", "zero-fp16", "fsdp1", "fsdp2-lora", "torchtune", "megatron"}

# The other grid: nothing of it was looked at while the search was written.
OTHER_MODELS = """BART-large BERT-base GPT-2-medium GPT-J-6B Gemma-2B Gemma-3-27B-text Mistral-7B-v0.1
Mixtral-8x22B OPT-1.3B OPT-6.7B Pythia-2.8B Pythia-6.9B Qwen2.5-1.5B Qwen2.5-3B StableLM-3B-4E1T
StarCoder2-7B T5-small TinyLlama-1.1B ViT-B-16 Yi-6B default-causal-lm-arcee default-causal-lm-cohere
default-causal-lm-ernie4_5 default-causal-lm-ernie4_5_moe default-causal-lm-falcon
default-causal-lm-glm4 default-causal-lm-glm4_moe default-causal-lm-gpt_neo default-causal-lm-helium
default-causal-lm-minimax_m2 default-causal-lm-olmo3 default-causal-lm-seed_oss
default-causal-lm-xglm default-image-cls-convnextv2 default-image-cls-efficientnet
default-masked-lm-albert default-seq2seq-longt5 default-seq2seq-umt5""".split()
OTHER_CARDS = {"P100-PCIE-16GB": (6.0, "nvidia"), "RTX-2080-Ti": (7.5, "nvidia"),
               "RTX-3080-10GB": (8.6, "nvidia"), "RTX-A6000": (8.6, "nvidia"),
               "RTX-4070": (8.9, "nvidia"), "RTX-4060-Ti-16GB": (8.9, "nvidia"),
               "L40S": (8.9, "nvidia"), "A30": (8.0, "nvidia"), "H200-SXM5-141GB": (9.0, "nvidia"),
               "B200-SXM-180GB": (10.0, "nvidia"), "RTX-5070-Ti": (12.0, "nvidia"),
               "MI210": (0, "amd")}
OTHER_SETUPS = {
    "default": {},
    "sgd": {"precision": "amp-bf16", "optimizer": "sgd-momentum"},
    "adafactor": {"precision": "bf16", "optimizer": "adafactor", "grad-ckpt": "full"},
    "evaluates": {"precision": "amp-bf16", "evaluates": "yes", "eval-batch": "16"},
    "packing": {"precision": "bf16-amp", "packing": "true", "attn": "flash"},
    "dora": {"precision": "bf16-amp", "lora-r": "32", "use-dora": "true",
             "lora-targets": "all-linear"},
    "dpo": {"precision": "bf16-amp", "objective": "dpo", "lora-r": "16"},
    "dpo-full": {"precision": "amp-bf16", "objective": "dpo"},
    "ema": {"precision": "amp-bf16", "ema": "foreach"},
    "16-bit": {"precision": "bf16", "optimizer": "lion"},
    "qlora": {"precision": "bf16-amp", "lora-r": "64", "qlora": "true", "kbit-prepare": "true",
              "double-quant": "true", "grad-ckpt": "full"},
    "zero-fp16": {"precision": "fp16", "engine": "deepspeed", "zero": "1"},
    "fsdp1": {"precision": "amp-bf16", "engine": "fsdp1", "zero": "3", "grad-ckpt": "full"},
    "fsdp2-lora": {"precision": "bf16-amp", "engine": "fsdp2", "zero": "3", "lora-r": "16"},
    "torchtune": {"precision": "bf16", "engine": "torchtune", "zero": "3"},
    "megatron": {"precision": "bf16", "engine": "megatron"},
}

# A third one, of what the other two lack: kinds of adapters, frozen parts, objectives that hold two
# models, settings on the host, cards of workstations and slices of cards.
THIRD_MODELS = """Llama-2-7B default-causal-lm-apertus default-causal-lm-biogpt default-causal-lm-bitnet
default-causal-lm-codegen default-causal-lm-cwm default-causal-lm-diffllama default-causal-lm-electra
default-causal-lm-gemma4_text default-causal-lm-gptj default-causal-lm-hyperclovax
default-causal-lm-ministral3 default-causal-lm-mixtral default-causal-lm-modernbert-decoder
default-causal-lm-olmoe default-causal-lm-phi3 default-causal-lm-rembert default-causal-lm-roformer
default-causal-lm-vaultgemma default-image-cls-beit default-image-cls-cvt default-image-cls-focalnet
default-image-cls-ijepa default-image-cls-mobilevit default-image-cls-poolformer
default-masked-lm-camembert default-masked-lm-jina_embeddings_v3 default-masked-lm-mobilebert
default-masked-lm-mpnet default-masked-lm-nomic_bert default-masked-lm-squeezebert
default-seq2seq-blenderbot default-seq2seq-m2m_100 default-seq2seq-marian default-seq2seq-plbart
Qwen2.5-14B Gemma-2-2B OPT-6.7B Llama-2-70B Mixtral-8x7B Phi-4 StarCoder2-15B T5-11B""".split()
THIRD_CARDS = {"P40": (6.1, "nvidia"), "TITAN-RTX": (7.5, "nvidia"), "V100-SXM2-16GB": (7.0, "nvidia"),
               "A40": (8.6, "nvidia"), "A2": (8.6, "nvidia"), "RTX-A4000": (8.6, "nvidia"),
               "RTX-4080": (8.9, "nvidia"), "RTX-6000-Ada": (8.9, "nvidia"),
               "H100-NVL-94GB": (9.0, "nvidia"), "RTX-5060-Ti-16GB": (12.0, "nvidia"),
               "A100-SXM4-80GB MIG 2g.20gb": (8.0, "nvidia"), "MI250": (0, "amd")}
THIRD_SETUPS = {
    "default": {},
    "orpo": {"precision": "amp-bf16", "objective": "orpo"},
    "kto": {"precision": "bf16-amp", "objective": "kto", "lora-r": "8"},
    "reward": {"precision": "amp-bf16", "objective": "reward"},
    "frozen": {"precision": "amp-bf16", "train-last": "4"},
    "ia3": {"precision": "bf16-amp", "lora-r": "8", "peft-type": "ia3"},
    "8-bit-base": {"precision": "bf16-amp", "lora-r": "16", "base-weights": "int8"},
    "old-half": {"precision": "fp16-amp", "lora-r": "16"},
    "old-qlora": {"precision": "fp16-amp", "lora-r": "16", "qlora": "true", "kbit-prepare": "true"},
    "torchao": {"precision": "bf16", "optimizer": "adamw-torchao-8bit"},
    "muon": {"precision": "amp-bf16", "optimizer": "muon"},
    "compiled": {"precision": "amp-bf16", "compile": "true"},
    "accumulates": {"precision": "amp-bf16", "evaluates": "yes", "eval-accumulation": "4"},
    "zero3-host": {"precision": "amp-bf16", "engine": "deepspeed", "zero": "3",
                   "offload-optimizer": "cpu", "offload-params": "cpu"},
    "zero3-lora": {"precision": "bf16-amp", "engine": "deepspeed", "zero": "3", "lora-r": "16"},
    "fsdp2-host": {"precision": "bf16", "engine": "fsdp2", "zero": "3", "offload-params": "cpu"},
}
MANY |= {"zero3-host", "zero3-lora", "fsdp2-host"}
GRIDS = {"first": (MODELS, CARDS, SETUPS), "other": (OTHER_MODELS, OTHER_CARDS, OTHER_SETUPS),
         "third": (THIRD_MODELS, THIRD_CARDS, THIRD_SETUPS)}


def questions(n, seed, grid):
    models, cards, setups = GRIDS[grid]
    models = [m for m in models if os.path.exists(os.path.join(CONFIGS, m + ".json"))]
    rng = random.Random(seed)
    out = []
    while len(out) < n:
        model, card, setup = rng.choice(models), rng.choice(list(cards)), rng.choice(list(setups))
        gpus = rng.choice(GPUS[1:] if setup in MANY else GPUS)
        knobs = dict(setups[setup])
        knobs["micro-batch"] = str(rng.choice((1, 2, 4, 8, 16)))
        knobs["grad-accum"] = str(rng.choice((1, 1, 2, 4)))
        image = model.startswith(("ViT", "Swin", "default-image"))
        seq = rng.choice((512, 1024, 2048, 4096, 8192))
        config = json.load(open(os.path.join(CONFIGS, model + ".json")))
        most = config.get("max_position_embeddings") or config.get("n_positions") or 8192
        if not image:
            knobs["seq-len"] = str(min(seq, int(most)))
        if gpus > 1:
            knobs["gpus"] = str(gpus)
        out.append({"model": model, "card": card, "setup": setup, "knobs": knobs})
    return out
