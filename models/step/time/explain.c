/* The ledger of seconds in words: of each part the formula, the numbers that went into it, and where
 * both come from.
 *
 * The seconds are oom_step_time's own; what is here only says how they came about. */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "steptime_as.h"
#include "update.h"
#include "oomplan/option.h"
#include "oomplan/steptime.h"
#include "step/engines.h"

struct facts {
	const struct oom_plan *plan;
	const struct oom_eval *eval;
	const struct oom_gpu *gpu;
	struct oom_speed speed;
	char *out;
	size_t size;
};

static void say(const struct facts *f, const char *format, ...)
{
	va_list args;

	va_start(args, format);
	vsnprintf(f->out, f->size, format, args);
	va_end(args);
}

static long long times(const struct facts *f)
{
	return (long long)f->plan->grad_accum;
}

static void products(const struct facts *f)
{
	const struct oom_work *w = &f->eval->work;

	say(f, "(%.4g + %.4g for their shapes) Tflop / %.4g Tflop/s (%.0f %% of %.4g) + %.4g Tflop / %.4g Tflop/s in fp32, x %lld",
	    w->product_flops / 1e12,
	    (2 * w->written * f->speed.of->lead + w->depth * f->speed.of->units * 128 * 128) / 1e12, f->speed.products / 1e12, 100 * f->speed.products / f->speed.peak,
	    f->speed.peak / 1e12, w->fp32_flops / 1e12, f->speed.fp32_products / 1e12, times(f));
}

static void attention(const struct facts *f)
{
	const struct oom_work *w = &f->eval->work;

	if (w->wide_flops > 0)
		say(f, "%.4g Tflop / %.4g Tflop/s in 16 bit + %.4g Tflop / %.4g Tflop/s in fp32 + %.4g Tflop / %.4g Tflop/s outside of "
		       "fused kernels, x %lld",
		    (w->attention_flops - w->wide_flops) / 1e12, f->speed.attention / 1e12, w->wide_flops / 1e12,
		    f->speed.wide / 1e12, w->batched_flops / 1e12, f->speed.batched / 1e12, times(f));
	else if (w->batched_flops > 0)
		say(f, "%.4g Tflop / %.4g Tflop/s in fused kernels + %.4g Tflop / %.4g Tflop/s outside, x %lld",
		    w->attention_flops / 1e12, f->speed.attention / 1e12, w->batched_flops / 1e12,
		    f->speed.batched / 1e12, times(f));
	else
		say(f, "%.4g Tflop / %.4g Tflop/s, x %lld", w->attention_flops / 1e12,
		    f->speed.attention / 1e12, times(f));
}

static void traffic(const struct facts *f)
{
	say(f, "%.4g GB%s / %.4g GB/s (%.0f %% of the data sheet), x %lld",
	    oom_moved_bytes(f->plan, &f->eval->work, f->speed.cast_bytes) / 1e9,
	    f->plan->compile ? " (what products write, and 0.35 of the rest, compiled)" : "", f->speed.memory / 1e9,
	    100 * f->speed.of->memory, times(f));
}

static void unpacking(const struct facts *f)
{
	say(f, "as long as %.4g G elements of NF4, x 2.5 B / %.4g GB/s or x 130 / %.4g Tflop/s in fp32, x %lld",
	    f->eval->work.unpacked / 1e9, f->speed.memory / 1e9, f->speed.fp32 / 1e12, times(f));
}

static void launches(const struct facts *f)
{
	const double hooks = oom_engine_hooks_s(f->plan, &f->eval->work);
	const double layers = oom_engine_layers_s(f->plan, &f->eval->work);
	const double update = oom_update_python_s(&f->eval->work);
	char gathering[64] = "", least[64] = "", updating[64] = "";

	if (layers > 0)
		snprintf(least, sizeof(least), ", no less than %.3g s of the layers' own Python", layers);
	if (hooks > 0)
		snprintf(gathering, sizeof(gathering), " + %.3g s of hooks that gather weights", hooks);
	if (update > 0)
		snprintf(updating, sizeof(updating), ", and %.3g s of the optimizer's Python", update);
	say(f, "%.0f x %.3g us from Python + %.0f x %.3g us from autograd%s%s%s, x %lld%s",
	    f->eval->work.launches * oom_engine_launched(f->plan, &f->eval->work), f->speed.python_s * 1e6,
	    f->eval->work.launches_back * oom_engine_launched(f->plan, &f->eval->work),
	    f->speed.engine_s * 1e6, f->plan->compile ? ", a third of them compiled" : "", gathering,
	    least, times(f), updating);
}

static void sent(const struct facts *f, double bytes, double calls, double speed)
{
	say(f, "%.4g GB in %.0f calls, %.4g GB/s a link, x %lld", bytes / 1e9, calls, speed / 1e9, times(f));
}

static void tensor(const struct facts *f)
{
	say(f, "%.4g GB in %.0f calls, %.4g GB/s a link, %.0f %% of it beside products, x %lld",
	    f->eval->work.tensor_bytes / 1e9, f->eval->work.tensor_calls, f->speed.link / 1e9,
	    f->plan->tp_overlap		    ? 100 * (1 - 1 / (double)f->plan->tp) :
	    oom_engine_core_layers(f->plan) ? 100 * f->eval->work.tensor_behind :
					      0,
	    times(f));
}

static void expert(const struct facts *f)
{
	say(f, "%.4g GB in %.0f calls, %.4g GB/s within and %.4g GB/s between nodes, x %lld",
	    f->eval->work.expert_bytes / 1e9, f->eval->work.expert_calls, f->speed.link / 1e9,
	    f->speed.network / 1e9, times(f));
}

static void context(const struct facts *f)
{
	sent(f, f->eval->work.context_bytes, f->eval->work.context_calls, f->speed.link);
}

static void pipeline(const struct facts *f)
{
	sent(f, f->eval->work.pipeline_bytes, f->eval->work.pipeline_calls,
	     f->plan->nodes > 1 ? f->speed.network : f->speed.link);
}

static void bubble(const struct facts *f)
{
	say(f, "p = %lld stages, v = %lld chunks, m = %lld micro-batches", (long long)f->plan->pp,
	    (long long)f->plan->vpp, times(f));
}

static void gradients(const struct facts *f)
{
	say(f, "%.4g GB of gradients, %.4g GB of weights over %lld ranks, ZeRO %lld; %.4g GB/s within, %.4g "
	       "GB/s per GPU between nodes%s",
	    (double)f->eval->grad_bytes / 1e9, (double)f->eval->param_bytes / 1e9,
	    (long long)(oom_plan_data_parallel(f->plan) * f->plan->cp), (long long)f->plan->zero_stage,
	    f->speed.link / 1e9, f->speed.network / 1e9,
	    f->plan->nodes > 1 && !(oom_network_gbps(f->plan, f->gpu) > 0) ? " (a guess: no --network-gbps was named)" :
									      "");
}

static void optimizer(const struct facts *f)
{
	char name[OOM_VALUE_SIZE];

	say(f, "%s: %.4g GB of states, %.4g GB of weights, %.4g GB of gradients, %.4g GB/s",
	    oom_plan_get(f->plan, oom_knob_find("optimizer"), name, sizeof(name)), (double)f->eval->opt_bytes / 1e9,
	    (double)f->eval->param_bytes / 1e9, (double)f->eval->grad_bytes / 1e9, f->speed.stream / 1e9);
}

static void host(const struct facts *f)
{
	say(f, "%.4g GB pinned, %.4g GB pageable, %.4g GB of activations, %.4g GB on disk; %.4g GB/s over PCIe",
	    (double)f->eval->host_pinned_bytes / 1e9, (double)f->eval->host_pageable_bytes / 1e9,
	    (double)f->eval->offloaded_bytes / 1e9, (double)f->eval->nvme_bytes / 1e9,
	    f->speed.pcie / 1e9);
}

static const struct {
	const char *formula, *source;
	void (*inputs)(const struct facts *f);
} parts[OOM_TIME_PART_COUNT] = {
	[OOM_TIME_PRODUCTS] = {"(flops + 2 x written x lead + depths x units x 128 x 128) / min(share of the peak, watts fed) or 0.83 of products measured alone, beside the weights read",
			       "2 x in x out per row; shares fitted to data/throughput.csv (cards.c)", products},
	[OOM_TIME_ATTENTION] = {"flops x (1 + 384 / keys) / share of the products' speed; backward 2.5 of the forward",
				"arXiv:2205.14135, appendix B; share fitted to data/throughput.csv", attention},
	[OOM_TIME_TRAFFIC] = {"bytes born, written once and read once / share of the bandwidth",
			      "rows of the tape (work.c); share fitted to data/throughput.csv", traffic},
	[OOM_TIME_UNPACKING] = {"elements x the longer of 2.5 B / memory and 130 operations / fp32 units", "bitsandbytes pull request 1747, litgpt; GPTQ 0.9 as long (QwenLM)",
				unpacking},
	[OOM_TIME_LAUNCHES] = {"what launching takes beyond the card's own time: (c^4 + l^4)^(1/4) - c",
			       "kernels counted from the tape; microseconds per launch: cards.c", launches},
	[OOM_TIME_TENSOR] = {"bytes / ring + calls x latency, beyond what the weights' gradients hide",
			     "megatron/core/tensor_parallel/layers.py; nccl-tests (collectives.c)", tensor},
	[OOM_TIME_EXPERT] = {"bytes x (outside / network + inside / link) + calls x latency; Megatron sends once to a machine",
			     "megatron/core/transformer/moe/token_dispatcher.py; DeepEP README.md", expert},
	[OOM_TIME_CONTEXT] = {"bytes / ring + calls x latency, beyond what attention hides",
			      "arXiv:2310.01889; TransformerEngine attention.py", context},
	[OOM_TIME_PIPELINE] = {"bytes / link + calls x 20 us", "megatron/core/pipeline_parallel/schedules.py",
			       pipeline},
	[OOM_TIME_BUBBLE] = {"(p - 1) / v of a micro-batch's time", "arXiv:2104.04473, section 2.2", bubble},
	[OOM_TIME_GRADIENTS] = {"bytes / ring + calls x latency, beyond what computation hides",
				"ZeRO: arXiv:1910.02054, section 7; nccl-tests (collectives.c)", gradients},
	[OOM_TIME_OPTIMIZER] = {"bytes of weights, gradients and states x passes over them / memory",
				"torch/optim/_multi_tensor: two and a half passes; fused: one", optimizer},
	[OOM_TIME_HOST] = {"bytes / PCIe, to and from; the CPU's update at 100 GB/s of host memory",
			   "deepspeed/ops/adam; cudaMemcpy from pinned memory", host},
};

void oom_step_time_explain(const struct oom_plan *plan, const struct oom_eval *eval,
			   const struct oom_gpu *gpu, struct oom_time_row rows[OOM_TIME_PART_COUNT])
{
	const struct oom_step_time t = oom_step_time(plan, eval, gpu);
	struct facts f = {.plan = plan, .eval = eval, .gpu = gpu, .size = sizeof(rows->inputs)};

	oom_speed_of(gpu, plan, &f.speed);
	for (int i = 0; i < OOM_TIME_PART_COUNT; i++) {
		struct oom_time_row *r = &rows[i];

		*r = (struct oom_time_row){.part = (enum oom_time_part)i,
					   .seconds = t.part_s[i],
					   .formula = parts[i].formula,
					   .source = parts[i].source};
		f.out = r->inputs;
		parts[i].inputs(&f);
	}
}

double oom_step_tokens(const struct oom_plan *plan)
{
	return plan->seq_len > 0 ? (double)plan->seq_len : 1;
}
