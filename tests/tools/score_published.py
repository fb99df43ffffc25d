#!/usr/bin/env python3
"""Readings that others published, priced with the knobs that there are today.

    score_published.py PROGRAM FOLDER [--rows OUT.csv] [--off PERCENT] [--only PREFIX,...] [--no-fit]

FOLDER holds measured_peaks.csv, fit_or_oom.csv and evaluate.py, whose rules map each row to knobs but know no versions
of libraries and none of the techniques that got a knob since it was written.  The rules here extend those, by source;
the versions are those that the sources name (fms-acceleration's scripts/benchmarks/refs/requirements*.txt) or, where
none are named, of the time of the table.  After evaluate.py's tables come the complete rows that every knob of which is
there, in sum, and one line for each that is off by more than PERCENT (5), the lowest first."""
import collections, csv, importlib.util, json, os, subprocess, sys, tempfile

COLUMNS = """transformers torch bitsandbytes peft deepspeed liger_kernels autocast_adapter_dtype use_reentrant base_weights modules_to_save
base_group_size lora_zero_pad kbit_recast keep_outputs compile optimizer_in_bwd offload_gradients torch_autocast kv_repeat keep_base_inputs loss_parallel packed_weights overlap_comm""".split()


def load(folder):
    spec = importlib.util.spec_from_file_location("evaluate", os.path.join(folder, "evaluate.py"))
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def price(program, mapped):
    """As evaluate.py does, but on the row's own card, with the workspaces that PyTorch takes from its allocator."""
    folder = tempfile.mkdtemp()
    source, priced = os.path.join(folder, "rows.csv"), os.path.join(folder, "priced.csv")
    columns = [c for c in ev.COLS if any(c in k for k in mapped.values())]
    with open(source, "w", newline="") as f:
        w = csv.writer(f)
        w.writerow(["key"] + columns)
        for key, knobs in mapped.items():
            w.writerow([key] + [knobs.get(c, "") for c in columns])
    p = subprocess.run([program, "estimate", "--runs", source, "-o", priced], capture_output=True, text=True)
    if not os.path.exists(priced):
        sys.exit(p.stderr[-600:])
    rows = {r["key"]: r for r in csv.DictReader(open(priced))}
    for r in rows.values():
        if not r["pred_error"]:
            r["pred_overall_peak"] = r["pred_allocated"]
            r["pred_reserved_native"] = r["pred_reserved_bytes"]
    return rows


def verdicts(fits):
    """The program's own verdict, with its default margin, instead of evaluate.py's 98 % of the card."""
    def own(program, mapped):
        out = fits(program, mapped)
        for o in out.values():
            o["fits"] = o.get("sweep_fits", o.get("fits"))
        return out
    return own


def has_a_knob(missing, *words):
    missing[:] = [m for m in missing if not any(w in m for w in words)]


def compiled(row, knobs, missing):
    if row["compile"].lower().startswith("yes"):
        knobs["compile"] = 1
        has_a_knob(missing, "torch.compile")


def gptq(knobs, model):
    """Main branches of TheBloke's: groups of a whole row (group_size -1) for Mixtral and Llama-2-70B, else of 128."""
    knobs.pop("qlora", None)
    knobs.pop("double_quant", None)
    knobs["base_weights"] = "gptq"
    knobs["packed_weights"] = "parameters"
    if model.startswith("TheBloke/") and ("Mixtral" in model or "70B" in model):
        knobs["base_group_size"] = 1 << 20


RESIZED = tempfile.mkdtemp()


def changed(path, config, name):
    out = os.path.join(RESIZED, f"{os.path.basename(path)[:-5]}+{name}.json")
    json.dump(config, open(out, "w"))
    return out


def resized(path, added):
    """A config whose vocabulary a trainer made larger."""
    config = json.load(open(path))
    config["vocab_size"] += added
    return changed(path, config, added)


def as_litgpt(knobs):
    """litgpt (litgpt/model.py) makes q, k and v in one product: where every head has its own keys, v is a view that keeps
    the product, as in transformers' Phi-3."""
    path = knobs["model"]
    config = json.load(open(path))
    heads = config.get("num_attention_heads")
    if config.get("model_type") not in ("llama", "mistral"):
        return
    config.update(model_type="phi3", architectures=["Phi3ForCausalLM"], pad_token_id=0)
    knobs["model"] = changed(path, config, "litgpt")
    joined = dict.fromkeys(("q_proj", "k_proj", "v_proj"), "qkv_proj") | dict.fromkeys(("gate_proj", "up_proj"), "gate_up_proj")
    if knobs.get("lora_targets"):
        knobs["lora_targets"] = "+".join(dict.fromkeys(joined.get(n, n) for n in knobs["lora_targets"].split("+")))


# ---- one rule a source; old: evaluate.py's own

def fms_acceleration(row, old):
    knobs, missing = old(row)
    has_a_knob(missing, "fused cross-entropy", "MoE experts", "loss on bf16", "GPTQ")
    newest = row["source"].endswith("a100_80gb.csv") and "orca" not in row["source"]
    knobs.update(transformers="4.48" if newest else "4.45", torch="2.4", bitsandbytes="0.43.3", peft="0.13", fused_ce="plain")
    if row["fused_ce"].startswith("liger"):
        knobs.update(fused_ce="fused", liger_kernels="fast-lora" if row["quant"] else "fast-kernels")
    elif row["fused_ce"].startswith("fused"):
        knobs.update(fused_ce="in-place", liger_kernels="fast-lora" if row["quant"] else "fast-kernels")
    if "gptq" in row["quant"].lower():
        gptq(knobs, row["model"])
        knobs["precision"] = "fp16-amp"
    if knobs.get("kbit_prepare"):
        knobs["kbit_recast"] = 1             # TRL 0.11 to 0.13: peft_module_casting_to_bf16
    # fms-hf-tuning's sft_trainer.py adds the special tokens that a tokenizer has not and resizes the embeddings to
    # them, to a multiple of 1: <pad> to Llama 2's and Mistral's, <PAD> and <unk> to Llama 3's, none to PowerLM's
    if "PowerLM" in row["model"]:            # scenarios-granite.yaml has bf16: True beside torch_dtype, in every scenario
        knobs["precision"] = "bf16-amp"
    added = 2 if "Llama-3" in row["model"] else 1 if "istral" in row["model"] or "ixtral" in row["model"] or "Llama-2" in row["model"] else 0
    if added:
        knobs["model"] = resized(knobs["model"], added)
    return knobs, missing


def litgpt(row, old):
    knobs, missing = old(row)
    has_a_knob(missing, "chunked head", "bitsandbytes before")
    knobs.update(torch="2.1", bitsandbytes="0.42", autocast_adapter_dtype=0, kv_repeat="sdpa")
    if ev.num(row["lora_rank"]):
        knobs["lora_dropout"] = 0.05         # finetune/lora.py and the files of config_hub
    if row["fused_ce"].startswith("chunked"):
        knobs["fused_ce"] = "parts" if ev.num(row["lora_rank"]) else "outside"
    if knobs.pop("qlora", None):             # resource-tables.md is of 2023, config_hub of the years after
        knobs["base_weights"] = "lightning" if row["id"].split("-")[1] == "litgptres" else "litgpt"
    if row["lora_targets"] in ("q,v", "query,value"):
        knobs["lora_zero_pad"] = 1
    if "head" in row["lora_targets"]:
        missing.append("adapters of layers that are joined in the family that stands for litgpt's, and of the head")
    as_litgpt(knobs)
    return knobs, missing


def torchtune(row, old):
    knobs, missing = old(row)
    has_a_knob(missing, "chunked cross-entropy", "optimizer step inside")
    knobs["torch"] = "2.5"
    if "chunked" in row["fused_ce"]:
        knobs["fused_ce"] = "chunked"
    if "in backward" in row["optimizer"]:
        knobs["optimizer_in_bwd"] = 1
    compiled(row, knobs, missing)
    return knobs, missing


def torchtitan(row, old):
    missing = []
    knobs = ev.common(row, ev.base(row), missing)
    knobs.update(engine="fsdp2", zero_stage=3, precision="amp-bf16", optimizer="adamw-fused", attn="sdpa")
    for degree in ("cp", "tp", "pp"):
        if ev.num(row[degree]) and int(row[degree]) > 1:
            knobs[degree] = row[degree]
    if "tp" in knobs:
        knobs.update(sp=1, loss_parallel=1)
    if "not stated" in row["activation_checkpointing"]:
        raise ev.No("source does not say what is checkpointed")
    if "selective" in row["activation_checkpointing"]:
        knobs["grad_ckpt"] = "selective-op"
        has_a_knob(missing, "selective")
    compiled(row, knobs, missing)
    return knobs, missing


def torchao(row, old):
    knobs, missing = old(row)
    has_a_knob(missing, "gradients offloaded", "torchao CPU")
    knobs["torch"] = "2.4"
    if "grads" in row["optimizer"]:
        knobs["offload_gradients"] = 1
    if "DeepSpeed" in row["optimizer"]:
        knobs["overlap_comm"] = "true"       # benchmarks/benchmark_low_bit_adam.py, of September 2024: DeepSpeed 0.15
        knobs["deepspeed"] = "0.15"
    compiled(row, knobs, missing)
    return knobs, missing


def fsdp_qlora(row, old):
    knobs, missing = old(row)
    has_a_knob(missing, "adapters in bf16")
    if "after" in row.get("quantity", ""):
        missing.append("what is reserved after FSDP has wrapped the model, before a step")
    # February and March 2024; bitsandbytes 0.43.2, which keeps no inputs, is of July.  Its README rules out transformers
    # 4.38 and 4.39.  train.py sets output to None once the backward pass is done
    knobs.update(autocast_adapter_dtype=0, transformers="4.37", torch="2.2", bitsandbytes="0.42", torch_autocast="false",
                 use_reentrant="wrapped", keep_outputs=1)
    return knobs, missing


def qwen(row, old):
    """The configs beside the table are written as qwen2, with its names.  LoRA (emb) trains table and head as well."""
    whole = "embedding" in row["lora_targets"]
    knobs, missing = old({**row, "lora_targets": ""} if whole else row)
    has_a_knob(missing, "GPTQ")
    knobs.update(transformers="4.32", torch="2.0", peft="0.5")
    if knobs.get("lora_targets"):            # finetune.py's "c_proj" is the name of the attention's and of the MLP's
        knobs["lora_targets"] += "+down_proj"
    if whole:
        knobs["modules_to_save"] = "embed_tokens+lm_head"
    if "gptq" in row["quant"].lower():
        gptq(knobs, row["model"])
        # finetune/finetune_qlora_single_gpu.sh has --deepspeed ds_config_zero2.json, the model's own loss no upcast
        missing.append("loss on 16-bit logits that are copied (Qwen's own class)")
    return knobs, missing


def bigscience(row, old):
    knobs, missing = old(row)
    has_a_knob(missing, "Megatron-DeepSpeed")
    knobs["engine"] = "megatron-deepspeed"
    knobs["zero_stage"] = row["zero_stage"] or 0    # evaluate.py takes "0" for a stage
    # of 2021 and of February 2022: before PyTorch 1.13, which loads kernels when they are asked for
    knobs["torch"] = "1.10" if row["gpu"].startswith("V100") else "1.11"
    return knobs, missing


def alst(row, old):
    knobs, missing = old(row)
    has_a_knob(missing, "tiled")             # the rows without Liger's loss say "may apply"; whole logits are 0.3 % off
    return knobs, missing


def bing_bert(row, old):
    """DeepSpeed's tutorial of 2020: fp16 under an fp32 master, as Adam's states say; its kernels have no knob."""
    knobs, missing = old(row)
    if "kernel" in row["framework"]:
        missing.append("DeepSpeed's transformer kernels")
    knobs.update(task="token-cls", precision="amp-fp16", padding_mask=1, transformers="4.0", torch="1.2")
    return knobs, missing


def llm_foundry(row, old):
    knobs, missing = old(row)
    has_a_knob(missing, "llm-foundry", "float8")
    knobs.update(fused_ce="flash", torch="2.3")
    return knobs, missing


RULES = dict(fmsacc=fms_acceleration, fmsaccend=fms_acceleration, fmsaccsmi=fms_acceleration, litgptres=litgpt, litgpthub=litgpt,
             torchtuneflags=torchtune, torchtune=torchtune, titan=torchtitan, titanlog=torchtitan, torchao=torchao,
             fsdpqlora=fsdp_qlora, fsdpqlorabs=fsdp_qlora, qwen=qwen, bigsci=bigscience, bigsci1b3=bigscience, alst=alst,
             llmfoundry=llm_foundry, dsbert=bing_bert)


def extended(rule, old):
    return lambda row: rule(row, old)


def off_by_more(table, percent):
    rows = [r for r in csv.DictReader(open(table)) if r["err"] and r["status"] == "direct" and r["complete"] == "yes" and "end-" not in r["id"]]
    errors = [float(r["err"]) for r in rows]
    size = sorted(map(abs, errors))
    print(f"\n== complete, every technique has a knob, allocated, reserved and nvidia-smi: {len(rows)} rows, "
          f"median {size[len(size) // 2]:.2f} %, p95 {size[int(.95 * len(size))]:.2f} %, "
          f"too low by more than 5 %: {100 * sum(e < -5 for e in errors) / len(errors):.1f} %")
    groups = collections.Counter(r["id"].split("-")[1] for r in rows if abs(float(r["err"])) > percent)
    print("off by more:", ", ".join(f"{n} of {k}" for k, n in groups.most_common()))
    for r in sorted(rows, key=lambda r: float(r["err"])):
        if abs(float(r["err"])) > percent:
            print(f"{float(r['err']):+7.1f} %  {r['id'][2:]:18} {r['model'].split('/')[-1][:22]:23} gpus {r['n_gpus']:4} batch {r['micro_batch']:4} "
                  f"length {r['seq_len']:6} {r['method']:6} {r['quant'][:10]:11} {r['quantity'][:24]:25} measured {r['measured_gib']:>8} "
                  f"predicted {r['pred_gib']:>8} (allocated {r['alloc_gib']}, reserved {r['reserved_gib']})")


if __name__ == "__main__":
    program, folder = sys.argv[1:3]
    options = sys.argv[3:]
    percent = float(options.pop(options.index("--off") + 1)) if "--off" in options else 5.0
    options = [o for o in options if o != "--off"]
    if "--rows" not in options:
        options += ["--rows", os.path.join(tempfile.mkdtemp(), "rows.csv")]
    ev = load(folder)
    ev.COLS += [c for c in COLUMNS if c not in ev.COLS]
    ev.price = price
    ev.fits = verdicts(ev.fits)
    ev.RULES.update({prefix: extended(rule, ev.RULES.get(prefix, ev.generic)) for prefix, rule in RULES.items()})
    sys.argv = [sys.argv[0], program] + options
    ev.main()
    off_by_more(options[options.index("--rows") + 1], percent)
