#!/usr/bin/env python3
"""Compares oomplan's step times with published training throughputs.

  score_throughput.py OOMPLAN data/throughput.csv [--relative data/throughput_effects.csv] [--all] [--rows]
  score_throughput.py OOMPLAN TABLE --relative EFFECTS --restate data
  score_throughput.py THROUGHPUT_ACCURACY data/throughput.csv --relative data/throughput_effects.csv --tables .

The last writes the tables of README.md and models/step/time/README.md (between "<!-- throughput table" and
"<!-- end -->"), which tests/accuracy/throughput.c counts, as shipped and with each row's source left out.

Each row of the table becomes a point of `oomplan sweep`; the tokens a second that it predicts are
set against the published ones.  Ratios are predicted / published: 1 is right, 2 too fast.

The table is data/throughput.csv, whose rows name a model's shape and knobs, or one that states
set-ups in the words of their sources; --restate makes the first from the second.  The fits and the
leave-one-source-out table are tests/accuracy/throughput.c's."""
import argparse, collections, csv, json, os, re, statistics, subprocess, sys, tempfile

# Models that the table names without their shape, as their config.json states it (huggingface.co).
def llama(L, h, heads, kv, ffn, vocab, **more):
    return dict(model_type="llama", num_hidden_layers=L, hidden_size=h, num_attention_heads=heads,
                num_key_value_heads=kv, intermediate_size=ffn, vocab_size=vocab,
                max_position_embeddings=131072, tie_word_embeddings=False, **more)

def moe(L, h, heads, kv, dim, ffn, experts, k, vocab):
    return dict(model_type="qwen3_moe", num_hidden_layers=L, hidden_size=h, num_attention_heads=heads,
                num_key_value_heads=kv, head_dim=dim, moe_intermediate_size=ffn, intermediate_size=ffn,
                num_experts=experts, num_experts_per_tok=k, vocab_size=vocab,
                max_position_embeddings=131072, tie_word_embeddings=False)

def deepseek(kind, L, h, ffn, experts, k, moe_ffn, shared, dense, vocab):
    return dict(model_type=kind, num_hidden_layers=L, hidden_size=h, num_attention_heads=128,
                num_key_value_heads=128, intermediate_size=ffn, n_routed_experts=experts,
                num_experts_per_tok=k, moe_intermediate_size=moe_ffn, n_shared_experts=shared,
                first_k_dense_replace=dense, q_lora_rank=1536, kv_lora_rank=512, qk_nope_head_dim=128,
                qk_rope_head_dim=64, v_head_dim=128, vocab_size=vocab, n_group=8, topk_group=4,
                max_position_embeddings=163840, tie_word_embeddings=False)

def mixtral(L, h, heads, kv, ffn, vocab):
    return dict(model_type="mixtral", num_hidden_layers=L, hidden_size=h, num_attention_heads=heads,
                num_key_value_heads=kv, intermediate_size=ffn, num_local_experts=8,
                num_experts_per_tok=2, vocab_size=vocab, max_position_embeddings=65536)

NAMED = [
    ("santacoder", dict(model_type="gpt_bigcode", n_layer=24, n_embd=2048, n_head=16, n_inner=8192,
                        vocab_size=49280, multi_query=True, n_positions=2048)),
    ("Mistral-7B", llama(32, 4096, 32, 8, 14336, 32000) | dict(model_type="mistral", sliding_window=4096)),
    ("mixtral_8x22b", mixtral(56, 6144, 48, 8, 16384, 32768)),
    ("Mixtral-8x7B", mixtral(32, 4096, 32, 8, 14336, 32000)),
    ("Llama-2-70b", llama(80, 8192, 64, 8, 28672, 32000)),
    ("Llama-2-7b", llama(32, 4096, 32, 32, 11008, 32000)),
    ("LLAMA2-13B", llama(40, 5120, 40, 40, 13824, 32000)),
    ("PowerLM-3b", dict(model_type="granite", num_hidden_layers=40, hidden_size=2304, num_attention_heads=36,
                        num_key_value_heads=36, intermediate_size=9216, vocab_size=49152,
                        max_position_embeddings=4096, tie_word_embeddings=True)),
    ("405B", llama(126, 16384, 128, 8, 53248, 128256)),
    ("3.1-70B", llama(80, 8192, 64, 8, 28672, 128256)),
    ("Llama-3.2-3B", llama(28, 3072, 24, 8, 8192, 128256) | dict(tie_word_embeddings=True)),
    ("LLAMA3_70B", llama(80, 8192, 64, 8, 28672, 128256)),
    ("LLAMA3-70B", llama(80, 8192, 64, 8, 28672, 128256)),
    ("Llama-3.1-8B", llama(32, 4096, 32, 8, 14336, 128256)),
    ("Llama-3-8B", llama(32, 4096, 32, 8, 14336, 128256)),
    ("Llama3 8B", llama(32, 4096, 32, 8, 14336, 128256)),
    ("LLAMA3_8B", llama(32, 4096, 32, 8, 14336, 128256)),
    ("Llama3 70B", llama(80, 8192, 64, 8, 28672, 128256)),
    ("Qwen3_30B_a3B", moe(48, 2048, 32, 4, 128, 768, 128, 8, 151936)),
    ("Qwen3 MoE 30B", moe(48, 2048, 32, 4, 128, 768, 128, 8, 151936)),
    ("Qwen3_235B_a22B", moe(94, 4096, 64, 4, 128, 1536, 128, 8, 151936)),
    ("Qwen2.5 32B", llama(64, 5120, 40, 8, 27648, 152064) | dict(model_type="qwen2")),
    ("GPT OSS 120B", moe(36, 2880, 64, 8, 64, 2880, 128, 4, 201088)),
    ("GPT-OSS 120B", moe(36, 2880, 64, 8, 64, 2880, 128, 4, 201088)),
    ("GPT-OSS 20B", moe(24, 2880, 64, 8, 64, 2880, 32, 4, 201088)),
    ("DeepSeekV3", deepseek("deepseek_v3", 61, 7168, 18432, 256, 8, 2048, 1, 3, 129280)),
    ("deepseekv3_proxy", None),
    ("deepseekv2 cut", deepseek("deepseek_v2", 4, 5120, 12288, 160, 6, 1536, 2, 1, 102400)),
    ("deepseekv3 cut", deepseek("deepseek_v3", 4, 7168, 18432, 256, 8, 2048, 1, 1, 129280)),
    ("GPT3-175B", dict(model_type="gpt2", n_layer=96, n_embd=12288, n_head=96, vocab_size=51200, n_positions=2048)),
    ("Yi-34B", llama(60, 7168, 56, 8, 20480, 64000)),
    ("gpt2-xl", dict(model_type="gpt2", n_layer=48, n_embd=1600, n_head=25, vocab_size=50257, n_positions=1024)),
    ("gpt2", dict(model_type="gpt2", n_layer=12, n_embd=768, n_head=12, vocab_size=50257, n_positions=1024)),
    ("bert-large", dict(model_type="bert", num_hidden_layers=24, hidden_size=1024, num_attention_heads=16,
                        intermediate_size=4096, vocab_size=30522, max_position_embeddings=512)),
    ("bert-base", dict(model_type="bert", num_hidden_layers=12, hidden_size=768, num_attention_heads=12,
                       intermediate_size=3072, vocab_size=30522, max_position_embeddings=512)),
]

def config_of(row):
    """The model's config.json, or None when the table does not say enough."""
    if "shape" in row:
        word = lambda v: [word(x) for x in v[1:-1].split(",")] if v.startswith("[") else int(v) if re.fullmatch(r"-?[0-9]+", v) else float(v) if re.fullmatch(r"-?[0-9]*\.[0-9]+", v) else {"true": True, "false": False}.get(v, v)
        return {k: word(v) for k, v in (x.split("=", 1) for x in row["shape"].split(";"))}
    for name, config in NAMED:
        if name in row["model"]:
            return config
    if not row["layers_hidden"]:
        return None
    s = {k: int(v) for k, v in (x.split("=") for x in row["layers_hidden"].split(";"))}
    if row["task"] == "masked-lm":
        return dict(model_type="bert", num_hidden_layers=s["layers"], hidden_size=s["hidden"],
                    num_attention_heads=s["heads"], intermediate_size=s["ffn"], vocab_size=s["vocab"],
                    max_position_embeddings=512)
    if s["gated"]:
        return llama(s["layers"], s["hidden"], s["heads"], s["kv"], s["ffn"], s["vocab"])
    # the fused GELU of llm-foundry and flash-attention, not transformers' own in Python
    return dict(model_type="gpt2", activation_function="gelu", n_layer=s["layers"], n_embd=s["hidden"], n_head=s["heads"], n_inner=s["ffn"],
                vocab_size=s["vocab"], n_positions=65536)

ENGINES = [("llm.c", "hf"), ("torchtune", "torchtune"), ("fsdp1 or ddp", "fsdp1"), ("fsdp1", "fsdp1"),
           ("fsdp2", "fsdp2"), ("deepspeed", "deepspeed"), ("megatron", "megatron"), ("hf", "hf")]

def targets_of(row):
    """Modules that get adapters, as the source lists them, without the names that this model lacks."""
    m = re.search(r"targets ([a-z_ ,0-9]+?)(;|$)", row["notes"])
    names = re.split(r"[ ,]+", m[1].strip()) if m else []
    if "w1" in names or "all" in names or "QLoRA" in row["notes"] or row["source"].startswith("Answer"):
        return "all-linear"
    here = ["c_attn"] if "bigcode" in row["model"] else [n for n in names if n != "c_attn"]
    return "+".join(here)

def network_of(text, gpus, nodes):
    """Gb/s of a machine to others, where the table says so for a machine, a GPU, or by its adapters."""
    m = re.search(r"(?:(\d+) x )?(\d+) (Gb/s|Gbps|GB/s)( RoCE)?( RDMA| a GPU| per GPU| a node| a machine|$)", text)
    if not m or nodes < 2 or not (m[1] or m[5]) or text.startswith("NVLink in nodes"):
        return 0
    each = gpus // nodes if m[5] in (" a GPU", " per GPU") else int(m[1] or 1)
    return each * int(m[2]) * (8 if m[3] == "GB/s" else 1)

# What some sources' own code does and the table has no word for.
OWN_ADAPTERS = ("AnswerDotAI/", "QwenLM/")      # in 16 bit: fsdp_qlora's training loop, PEFT before 0.11

def knobs_of(row):
    if "knobs" in row:
        p = dict(x.split("=", 1) for x in row["knobs"].split())
        return p | {k: int(p[k]) for k in ("gpus", "seq-len", "micro-batch", "grad-accum") if k in p}
    n = lambda c, d=1: int(float(row[c])) if row[c] not in ("", None) else d
    tp, pp, cp, ep = n("tp"), n("pp"), n("cp"), n("ep")
    engine = next(e for word, e in ENGINES if row["engine"].startswith(word))
    zero = n("zero", 0)
    if max(tp, pp, cp, ep) > 1 and engine != "fsdp2":
        engine = "megatron"
    if engine == "megatron" and zero < 2 and row["source"].startswith("bigscience-workshop/"):
        engine = "megatron-deepspeed"           # its fork of 2021, whatever part of DeepSpeed a run used
    if engine in ("hf",) or n("n_gpus") == 1:
        zero = 0
    if engine == "hf" and zero:
        engine = "deepspeed"
    p = dict(engine=engine, gpus=n("n_gpus"), zero=zero, precision=row["precision"], micro_batch=n("micro_batch"),
             grad_accum=n("grad_accum"), seq_len=n("seq_len"), grad_ckpt=row["checkpointing"])
    if row["nodes"]:
        p["nodes"] = n("nodes")
    if "NVLink domain" in row["interconnect"]:
        # the table counts NVLink domains as nodes
        p["nodes"] = max(1, (p["gpus"] + 71) // 72) if row["gpu"].startswith("GB") else max(1, p["gpus"] // 8)
        while p["gpus"] % p["nodes"]:
            p["nodes"] += 1
    network = network_of(row["interconnect"], p["gpus"], p.get("nodes", 1))
    if network: p["network_gbps"] = network
    if p["grad_ckpt"] == "not stated":
        p["grad_ckpt"] = "none"
    if p["grad_ckpt"] == "selective" and not engine.startswith("megatron") and engine != "fsdp2":
        p["grad_ckpt"] = "full"
    p["attn"] = "eager" if row["attention"].startswith("eager") else row["attention"]
    p["loss"] = "fused" if row["loss"].startswith(("fused", "triton")) else "sliced" if row["loss"] == "sliced" else "plain"
    p["optimizer"] = "adamw-fused" if "fused" in row["optimizer"] else "adamw"
    # llm.c fuses what torch.compile fuses
    if row["compile"] == "yes" or row["engine"] == "llm.c": p["compile"] = 1
    if row["fp8"] != "no":
        p["fp8"] = next((w for a, w in (("MX", "mxfp8"), ("NV", "nvfp4"), ("row", "rowwise")) if row["fp8"].startswith(a)), "tensorwise")
    if engine.startswith("megatron") or max(tp, pp, cp) > 1:
        p |= dict(tp=tp, pp=pp, cp=cp, ep=ep, vpp=n("vpp"), sp=int(tp > 1), lora_r=0)
        if "Ulysses" in row["notes"] or "xtuner" in row["engine"]: p["cp-comm"] = "a2a"
        p["optimizer"] = "adamw"
    else:
        p["lora_r"] = n("lora_r", 0)
        if p["lora_r"] and targets_of(row): p["lora_targets"] = targets_of(row)
        if p["lora_r"] and "embedding and head trained" in row["notes"]:
            p["modules_to_save"] = "embed_tokens+lm_head"
        p["qlora"] = int(row["quant"] != "none")
        if p["qlora"] and row["source"].startswith("AnswerDotAI/"): p["quant_storage"] = "own"
        if row["source"].startswith(OWN_ADAPTERS) and p["lora_r"]: p["autocast_adapter_dtype"] = 0
        if "baseline-peft-bnb" in row["notes"] and "amp" in row["precision"]: p["kbit_prepare"] = 1
        if "params" in row["offload"]: p["offload-params"] = "cpu"
        if "optimizer" in row["offload"] and engine == "deepspeed": p["offload-optimizer"] = "cpu"
    return {k.replace("_", "-"): v for k, v in p.items()}

PARTS = tuple(p + "_s" for p in "products attention traffic unpacking launches tensor_parallel expert_parallel context_parallel "
              "pipeline bubble data_parallel optimizer host".split())

GROUPS = {
    "card": lambda r: r["gpu"],
    "class": lambda r: r["gpu"].split("-")[0],
    "engine": lambda r: r["engine"].split(" ")[0],
    "nodes": lambda r: "1 GPU" if r["n_gpus"] == "1" else "1" if str(r["nodes"]) == "1" else "2-8" if int(r["nodes"]) <= 8 else "9+",
    "size": lambda r: (lambda p: "< 1B" if p < 1e9 else "1-10B" if p < 1e10 else "10-100B" if p < 1e11 else "100B+")(r["n"]),
    "source": lambda r: r["source"].split("/")[1].split(" ")[0][:24] if "/" in r["source"] else r["source"][:24],
}

def price(oomplan, rows):
    """Adds `predicted` (tokens per second over all GPUs), or `error`, to every row."""
    with tempfile.TemporaryDirectory() as d:
        knobs = subprocess.run([oomplan, "list", "knobs"], capture_output=True, text=True).stdout
        known = set(l.split()[0] for l in knobs.splitlines()[1:]) | {"model", "gpu"}
        points = []
        for i, r in enumerate(rows):
            c = config_of(r)
            if c is None:
                r["error"] = "no config"
                continue
            path = os.path.join(d, "%d.json" % i)
            json.dump(c, open(path, "w"))
            points.append((r, dict(model=path, gpu=r["gpu"]) | {a: v for a, v in knobs_of(r).items() if a in known}))
        names = sorted(set(k for _, p in points for k in p))
        with open(os.path.join(d, "points.csv"), "w") as f:
            w = csv.writer(f)
            w.writerow(names)
            for _, p in points:
                w.writerow([p.get(n, "") for n in names])
        columns = "total_params,seconds_per_sample,error"
        extra = subprocess.run([oomplan, "list", "columns"], capture_output=True, text=True).stdout
        more = [c for c in ("seconds_low", "seconds_high", "mfu", "binds", "step_s") + PARTS if re.search(r"^%s\b" % c, extra, re.M)]
        out = subprocess.run([oomplan, "sweep", "--from", f.name, "--threads", "1", "--columns",
                              ",".join([columns] + more)], capture_output=True, text=True)
        got = list(csv.DictReader(out.stdout.splitlines()))
        if len(got) != len(points):
            sys.exit("sweep wrote %d of %d rows: %s" % (len(got), len(points), out.stderr))
        for (r, p), g in zip(points, got):
            s = float(g["seconds_per_sample"] or 0)
            r["knobs"], r["n"] = p, float(g["total_params"] or 0)
            if s > 0:
                tok = p.get("seq-len", 1)       # of images the table counts samples
                r["predicted"] = tok / s
                for m in more: r[m] = g[m]
                if "seconds_low" in more:
                    r["low"], r["high"] = tok / float(g["seconds_high"]), tok / float(g["seconds_low"])
            else:
                r["error"] = g["error"]

FACTS = "id source revision model shape engine gpu n_gpus nodes interconnect complete tokens_per_s_total knobs".split()

def restate(rows, effects, folder):
    """Writes the table's facts, in this program's words, into the repository."""
    with open(os.path.join(folder, "throughput.csv"), "w") as f:
        w = csv.writer(f, lineterminator="\n")
        w.writerow(FACTS)
        for r in rows:
            if "knobs" not in r: continue
            c = config_of(r)
            shape = ";".join("%s=%s" % (k, str(v).lower() if isinstance(v, bool) else v) for k, v in sorted(c.items()) if v is not None)
            knobs = " ".join("%s=%s" % (k, v) for k, v in sorted(r["knobs"].items()) if k not in ("model", "gpu") and v != "")
            w.writerow([r["id"], r["source"], r["source_rev"], r["model"], shape, r["engine"].split(" ")[0], r["gpu"], r["n_gpus"],
                        r["nodes"] or 1, r["interconnect"], r["complete"], r["tokens_per_s_total"], knobs])
    with open(os.path.join(folder, "throughput_effects.csv"), "w") as f:
        w = csv.writer(f, lineterminator="\n")
        w.writerow("id source change before after per_gpu ratio".split())
        for e in effects:
            m = re.search(r"(?:rows|ids) (\S+) (?:->|and) (\S+)", e["notes"])
            if m: w.writerow([e["id"], e["source"], e["change"], m[1], m[2], "yes" if "per GPU" in e["notes"] else "no", e["ratio"]])

def line(name, rows):
    q = sorted(r["predicted"] / r["published"] for r in rows)
    share = lambda f: 100 * sum(1 / f <= x <= f for x in q) / len(q)
    held = [r for r in rows if "low" in r]
    print("| %-26s | %4d | %5.2f | %5.2f | %5.2f | %4.0f | %4.0f | %s |" % (
        name, len(q), statistics.median(q), q[len(q) // 10], q[-1 - len(q) // 10], share(1.25), share(1.5),
        "%4.0f" % (100 * sum(r["low"] <= r["published"] <= r["high"] for r in held) / len(held)) if held else "   -"))

def ordered(rows):
    """Pairs on one set-up (model, card, GPUs, source) that differ by 3 % and more, and how many are
    predicted in the published order."""
    groups = collections.defaultdict(list)
    for r in rows:
        groups[r["source"], r["model"], r["gpu"], str(r["n_gpus"])].append(r)
    right = wrong = 0
    for g in groups.values():
        for i, a in enumerate(g):
            for b in g[:i]:
                d = a["published"] / b["published"]
                if 1 / 1.03 < d < 1.03:
                    continue
                if (a["predicted"] > b["predicted"]) == (d > 1) and a["predicted"] != b["predicted"]: right += 1
                else: wrong += 1
    return right, right + wrong

def counted(program, table, effects, *way):
    """What throughput_accuracy prints: scores by group, and its last lines."""
    out = subprocess.run([program, table, effects, *way], capture_output=True, text=True).stdout
    scores = {}
    for l in out.splitlines():
        cells = [c.strip() for c in l.split("|")[1:-1]]
        if len(cells) == 8 and cells[1].isdigit(): scores[cells[0]] = cells[1:]
    return scores, [l for l in out.splitlines() if l.startswith(("interval", "pairs", "effects"))]

def tables(program, table, effects, root):
    """Sets the two tables of residuals anew."""
    (here, said), (left, left_said) = counted(program, table, effects), counted(program, table, effects, "--cross")
    order = ["all", "class", "card", "engine", "nodes", "size", "source"]
    names = sorted(here, key=lambda n: (order.index(n.split(" ")[0]), n))
    long = ["| rows | n | median | p10-p90 | within 1.25 | 1.5 | in the interval | left out: median | within 1.25 | 1.5 | in the interval |",
            "|---|---|---|---|---|---|---|---|---|---|---|"]
    for n in names:
        (count, median, low, high, *shares), (_, lm, _, _, *lshares) = here[n], left[n]
        long.append("| " + " | ".join([n, count, median, low + "-" + high, *shares, lm, *lshares]) + " |")
    long += ["", "Shipped: %s. Sources left out: %s." % ("; ".join(said), "; ".join(left_said))]
    short = ["| rows | n | median | within 1.25 | within 1.5 | in the interval |", "|---|---|---|---|---|---|"]
    for n, r in [("as shipped", here["all"])] + [(w, left["class known from " + k]) for w, k in (
            ("each by a fit that did not see its source, cards that other sources published too", "others' rows"),
            ("the same, cards of a generation that no other source published", "no rows"))]:
        short.append("| %s | %s | %s | %s %% | %s %% | %s %% |" % (n, r[0], r[1], r[4], r[5], r[6]))
    short += ["", "Shipped: %s. Sources left out: %s." % ("; ".join(said), "; ".join(left_said))]
    for path, lines in (("README.md", short), ("models/step/time/README.md", long)):
        path = os.path.join(root, path)
        text = open(path).read()
        text, n = re.subn(r"(<!-- throughput table[^\n]*\n).*?(<!-- end -->)", lambda m: m[1] + "\n".join(lines) + "\n" + m[2],
                          text, flags=re.S)
        if n != 1: sys.exit("%s: one marked table expected, %d found" % (path, n))
        open(path, "w").write(text)

def main():
    a = argparse.ArgumentParser()
    a.add_argument("oomplan"); a.add_argument("table"); a.add_argument("--relative")
    a.add_argument("--all", action="store_true", help="rows too that do not state everything")
    a.add_argument("--rows", action="store_true"); a.add_argument("--group", action="append")
    a.add_argument("--match"); a.add_argument("--restate", metavar="FOLDER")
    a.add_argument("--tables", metavar="ROOT")
    a = a.parse_args()
    if a.tables: return tables(a.oomplan, a.table, a.relative, a.tables)
    rows = [r for r in csv.DictReader(open(a.table)) if r["tokens_per_s_total"]]
    price(a.oomplan, rows)
    if a.restate: restate(rows, csv.DictReader(open(a.relative)), a.restate)
    for r in rows:
        r["published"] = float(r["tokens_per_s_total"])
    failed = collections.Counter((r["error"], r["model"]) for r in rows if "predicted" not in r)
    for e, n in failed.items(): print("not priced:", n, e)
    ok = [r for r in rows if "predicted" in r and (a.all or r["complete"] == "yes")]
    if a.match: ok = [r for r in ok if re.search(a.match, r["id"] + " " + r["gpu"] + " " + r["engine"])]
    print("| rows                       |    n | med   | p10   | p90   | 1.25 | 1.5  | held |\n|---|---|---|---|---|---|---|---|")
    line("all", ok)
    for g in a.group or ["card", "engine", "nodes", "size", "source"]:
        by = collections.defaultdict(list)
        for r in ok: by[GROUPS[g](r)].append(r)
        for k in sorted(by): line(g + " " + k, by[k])
    print("pairs ordered right: %d of %d" % ordered(ok))
    if a.relative:
        by_id = {r["id"]: r for r in rows if "predicted" in r}
        err = []
        for r in csv.DictReader(open(a.relative)):
            m = re.search(r"(?:rows|ids) (\S+) (?:->|and) (\S+)", r.get("notes", "")) or (0, r.get("before"), r.get("after"))
            if not m or m[1] not in by_id or m[2] not in by_id: continue
            x, y = by_id[m[1]], by_id[m[2]]
            each = "per GPU" in r.get("notes", "") or r.get("per_gpu") == "yes"
            per = lambda z: z["predicted"] / (int(z["n_gpus"]) if each else 1)
            got = per(y) / per(x)
            err.append(abs(got / float(r["ratio"]) - 1))
            if a.rows: print("%-8s %-44s published %.3f predicted %.3f" % (r["id"], r["change"][:44], float(r["ratio"]), got))
        print("relative effects: %d, median error %.3f, within 25 %%: %.0f %%" % (len(err), statistics.median(err), 100 * sum(e < .25 for e in err) / len(err)))
    if a.rows:
        for r in sorted(ok, key=lambda r: r["predicted"] / r["published"]):
            k = r["knobs"]
            print("%-9s %5.2f %-22s %-9s %-14s %4s/%-3s mb%s ga%s s%s tp%s pp%s cp%s ep%s vpp%s z%s %s lora%s q%s ck:%s %s %s" % (
                r["id"], r["predicted"] / r["published"], r["model"][-22:], k["engine"], r["gpu"], r["n_gpus"], r["nodes"], k["micro-batch"],
                k["grad-accum"], k.get("seq-len", 1), *[k.get(d, 1) for d in ("tp", "pp", "cp", "ep", "vpp")], k.get("zero", 0), k["precision"], k.get("lora-r", 0), k.get("qlora", 0),
                k.get("grad-ckpt", "none")[:4], k.get("fp8", ""),
                " ".join("%s %.0f%%" % (p[:-2], 100 * float(r[p]) / float(r["step_s"])) for p in PARTS if float(r.get(p, 0)) > .03 * float(r.get("step_s", 1)))))

if __name__ == "__main__":
    main()
