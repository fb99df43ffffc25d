/* Every way from what was asked, turn by turn. */
#include "brute.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
/* cmocka wants those above */
#include <cmocka.h>

int64_t brute_named(const char *optimizer)
{
	for (size_t i = 0;; i++)
		if (!strcmp(oom_knob_find("optimizer")->choice(i)->name, optimizer))
			return (int64_t)i;
}

/* torchao's optimizer on the host, FSDP on one GPU, FSDP1 where plain PyTorch was asked for, small buckets. */
static bool last_resort(const struct oom_plan *a, const struct oom_plan *p)
{
	return p->reduce_bucket != a->reduce_bucket ||
	       (p->engine == OOM_ENGINE_FSDP1 && a->engine == OOM_ENGINE_HF) ||
	       (p->engine == OOM_ENGINE_HF && p->offload_optimizer && !a->offload_optimizer) ||
	       (a->gpus == 1 && p->engine == OOM_ENGINE_FSDP2 && a->engine == OOM_ENGINE_HF);
}

/* FSDP2's mixtures with tensor, pipeline and context parallelism: every degree, whatever it divides. */
static void mixtures(struct brute *b, struct oom_plan p)
{
	const struct oom_plan *a = b->asked;
	const struct oom_model_shape m = oom_model_shape(b->model);
	const int64_t layers = a->num_layers;

	if (!b->resorts || p.gpus < 2 || p.gpus != a->gpus || a->engine == OOM_ENGINE_DEEPSPEED)
		return;
	p.engine = OOM_ENGINE_FSDP2;
	p.zero_stage = 3;
	for (p.tp = 1; p.tp <= p.gpus / p.nodes; p.tp++)
		for (p.pp = 1; p.pp <= p.gpus; p.pp++)
			for (p.cp = 1; p.cp <= p.gpus; p.cp++)
				if (p.tp * p.pp * p.cp > 1 && p.gpus % (p.tp * p.pp * p.cp) == 0 &&
				    (int64_t)m.n_heads % p.tp == 0 && layers % p.pp == 0 &&
				    (p.cp == 1 || p.seq_len % (2 * p.cp) == 0))
					brute_batches(b, p, false);
}

/* A pass over one sequence in 16 bit, with autocast or without; 0: it does not run so. */
static uint64_t pass(const struct brute *b, int64_t attn, int64_t ckpt, bool autocast, enum oom_phase phase)
{
	struct oom_plan p = *b->asked;
	struct oom_eval e;

	p.micro_batch = p.grad_accum = 1;
	p.attn = attn;
	p.fused_ce = b->loss;
	p.grad_ckpt = ckpt;
	if (p.precision == OOM_FP32)
		p.precision = OOM_AMP_BF16;
	if (!oom_compat_launches(&b->compat, &p))
		return 0;
	p.precision = autocast ? p.precision : OOM_BF16;
	if (oom_evaluate(b->ev, b->model, &p, OOM_EVAL_FAST, &e, NULL))
		return 0;
	return e.peak[phase];
}

/* It holds less under this attention than under SDPA, be it with checkpoints or without. */
static bool is_leaner(const struct brute *b, int64_t attn)
{
	for (int i = 0; i < 8; i++) {
		const int64_t ckpt = i % 2 ? OOM_CKPT_FULL : OOM_CKPT_NONE;
		const enum oom_phase phase = i % 4 / 2 ? OOM_PHASE_BWD1 : OOM_PHASE_FWD1;
		const uint64_t other = pass(b, attn, ckpt, i / 4, phase);

		if (other && other < pass(b, OOM_ATTN_SDPA, ckpt, i / 4, phase))
			return true;
	}
	return false;
}

/* DeepSpeed's buckets as transformers makes them of "auto", a tenth of its live parameters. */
static bool narrow_buckets(struct oom_plan *p)
{
	if (p->engine != OOM_ENGINE_DEEPSPEED || !p->zero_stage)
		return false;
	p->reduce_bucket = OOM_COUNT_AUTO;
	if (p->zero_stage == 3) {
		p->prefetch_bucket = p->persistence = OOM_COUNT_AUTO;
		p->max_live_params = 100000000;
	}
	return true;
}

/* The plan, and with small buckets. */
static void buckets(struct brute *b, const struct oom_plan *p, bool qlora)
{
	struct oom_plan narrow = *p;

	if (brute_reachable(b->asked, p) && (b->resorts || !last_resort(b->asked, p)))
		brute_batches(b, *p, qlora);
	if (b->resorts && narrow_buckets(&narrow) && brute_reachable(b->asked, &narrow))
		brute_batches(b, narrow, qlora);
}

static void engines(struct brute *b, struct oom_plan p, bool qlora)
{
	static const int64_t off[4][2] = {{OOM_OFFLOAD_NONE, OOM_OFFLOAD_NONE},
					  {OOM_OFFLOAD_CPU, OOM_OFFLOAD_NONE},
					  {OOM_OFFLOAD_CPU, OOM_OFFLOAD_CPU},
					  {OOM_OFFLOAD_NONE, OOM_OFFLOAD_CPU}};
	const struct oom_plan *a = b->asked;
	const int64_t optimizers[5] = {a->optimizer, brute_named("adamw-8bit-embfp32"), brute_named("paged-adamw-8bit"),
				       brute_named("adamw-4bit"), brute_named("adamw")};
	const bool adam = !strncmp(oom_knob_find("optimizer")->choice((size_t)a->optimizer)->name,
				   "adamw", 5);

	for (int o = 0; o < (!adam ? 1 : b->resorts ? 5 : 3); o++)
		for (int k = 0; k < (b->resorts ? 8 : 4); k++)
			for (p.engine = 0; p.engine <= OOM_ENGINE_FSDP1; p.engine++)
				for (p.zero_stage = 0; p.zero_stage <= 3; p.zero_stage++)
					for (int flags = 0; flags < 4; flags++) {
						if (o && optimizers[o] == a->optimizer)
							continue;
						if (o == 1 && a->optimizer == brute_named("adamw-8bit"))
							continue;       /* it is in 8 bits */
						p.optimizer = o == 1 && p.engine == OOM_ENGINE_FSDP2 && adam ?
								      brute_named("adamw-torchao-8bit") : optimizers[o];
						p.offload_optimizer = off[k % 4][0];
						p.offload_params = off[k % 4][1];
						p.offload_activations = k / 4;
						p.bucket_view = flags & 1;
						p.hybrid_shard = flags >> 1;
						if (!k && !flags && !p.zero_stage && p.engine == OOM_ENGINE_FSDP2)
							mixtures(b, p);
						if (!brute_is_fsdp(&p) || off[k % 4][0] == OOM_OFFLOAD_NONE)
							buckets(b, &p, qlora);
					}
}

static void adapters(struct brute *b, struct oom_plan p, unsigned allow)
{
	engines(b, p, false);
	if (!(allow & OOM_ALLOW_LORA) || b->asked->lora_r)
		return;
	p.lora_r = 16;
	if (b->resorts && p.precision == OOM_BF16)
		p.precision = OOM_BF16_AMP;     /* PEFT's adapters stay in fp32 */
	snprintf(p.lora_targets, sizeof(p.lora_targets), "%s", oom_model_lora_targets(b->model));
	engines(b, p, false);
	if (p.precision != b->asked->precision)
		return;                         /* QLoRA has a precision of its own */
	p.qlora = p.kbit_prepare = 1;
	p.precision = OOM_BF16_AMP;
	engines(b, p, true);
}

static void kernels(struct brute *b, struct oom_plan p, unsigned allow)
{
	const struct oom_plan *a = b->asked, q = p;

	for (int precision = 0; precision < 3; precision++)
		for (int64_t attn = OOM_ATTN_EAGER; attn <= OOM_ATTN_FLASH; attn++)
			for (int loss = 0; loss < 4; loss++)
				for (p.grad_ckpt = 0; p.grad_ckpt < 2; p.grad_ckpt++) {
					if ((precision == 1 && a->precision != OOM_FP32) ||
					    (precision == 2 && !b->resorts))
						continue;
					p.precision = precision == 2 ? OOM_BF16 :
						      precision	    ? OOM_AMP_BF16 :
								      q.precision;
					if (attn != a->attn && (attn != OOM_ATTN_SDPA || a->attn != OOM_ATTN_EAGER) &&
					    (!b->resorts || !is_leaner(b, attn)))
						continue;
					p.attn = attn;
					/* Liger's other kernels beside the loss that they come with */
					if (loss > 1 && (!b->resorts || !b->liger))
						continue;
					p.liger_kernels = loss > 1 ? OOM_LIGER_ALL : q.liger_kernels;
					p.fused_ce = loss & 1 ? b->loss : q.fused_ce;
					if (loss & 1 ? q.fused_ce != b->loss &&
							       (b->resorts || b->loss != OOM_LOSS_CHUNKED_NLL) :
						       loss < 2 || q.fused_ce == b->loss)
						adapters(b, p, allow);
				}
}

static bool science_alone(const struct brute *b)
{
	for (size_t i = 0; i < b->n; i++)
		if (brute_gravest(b->all[i].changes) < OOM_SCIENCE)
			return false;
	return true;
}

void brute_all(struct brute *b, unsigned allow)
{
	struct oom_plan p = *b->asked;

	b->resorts = false;
	b->n = 0;
	for (;; p.seq_len /= 2) {
		const struct oom_plan q = p;

		b->n = 0;
		for (int64_t n = 1; n <= q.gpus; n++) {
			const int64_t each = q.gpus / q.nodes, nodes = (n + each - 1) / each;

			if (n != q.gpus &&
			    (b->objective != OOM_OBJECTIVE_PRICE || q.gpus % n || n % nodes))
				continue;
			p.gpus = n;
			p.nodes = nodes;
			kernels(b, p, allow);
		}
		p = q;
		/* the last resorts before anything that changes the science */
		if (!b->resorts && (!b->n || (p.seq_len == b->asked->seq_len && science_alone(b)))) {
			b->resorts = true;
			p.seq_len *= 2;
			continue;
		}
		b->resorts = false;
		if (b->n || !(allow & OOM_ALLOW_SEQ_LEN) || p.seq_len < 256)
			return;
	}
}

int brute_gravest(unsigned changes)
{
	return changes >= 64 ? OOM_SCIENCE :
	       changes >= 16 ? OOM_PLACEMENT :
	       changes	     ? OOM_NUMERICS :
			       OOM_EXACT;
}
