/* Rules between knobs: every row is broken by one plan and satisfied by another, and what breaks a
 * rule never gets a price. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "oomplan/model.h"
#include "oomplan/rules.h"
#include "knobs.h"

/* In the order of the rules.  `breaks` breaks its rule and none before it; `satisfies` differs in
 * what the rule asks for and breaks none at all. */
static const struct {
	const char *breaks, *satisfies;
} cases[] = {
	{"qlora=true", "qlora=true lora-r=8"},
	{"base-weights=int8", "base-weights=int8 lora-r=8"},
	{"qlora=true lora-r=8 base-weights=int8", "qlora=true lora-r=8 base-weights=nf4"},
	{"kbit-prepare=true lora-r=8", "kbit-prepare=true lora-r=8 qlora=true"},
	{"kbit-recast=true lora-r=8 qlora=true", "kbit-recast=true kbit-prepare=true lora-r=8 qlora=true"},
	{"kbit-recast=true kbit-prepare=true lora-r=8 base-weights=int8",
	 "kbit-recast=true kbit-prepare=true lora-r=8 base-weights=fp4"},
	{"moe-experts=quantised lora-r=8 base-weights=int8", "moe-experts=quantised lora-r=8 qlora=true"},
	{"double-quant=false lora-r=8 base-weights=int8", "double-quant=false lora-r=8 base-weights=fp4"},
	{"base-group-size=64 lora-r=8 qlora=true", "base-group-size=64 lora-r=8 base-weights=hqq"},
	{"quant-storage=uint8 lora-r=8", "quant-storage=uint8 lora-r=8 qlora=true"},
	{"quant-storage=uint8 lora-r=8 qlora=true engine=fsdp2 zero=3 gpus=2",
	 "quant-storage=own lora-r=8 qlora=true engine=fsdp2 zero=3 gpus=2"},
	{"quant-storage=uint8 lora-r=8 qlora=true engine=deepspeed zero=3 gpus=2",
	 "quant-storage=uint8 lora-r=8 qlora=true engine=deepspeed zero=2 gpus=2"},
	{"packed-weights=parameters lora-r=8 qlora=true", "packed-weights=parameters lora-r=8 base-weights=gptq"},
	{"use-dora=true", "use-dora=true lora-r=8"},
	{"lora-zero-pad=true", "lora-zero-pad=true lora-r=8"},
	{"peft-type=vera", "peft-type=vera lora-r=8"},
	{"lora-r=8 num-virtual-tokens=9", "peft-type=prompt-tuning num-virtual-tokens=9"},
	{"peft-type=p-tuning", "peft-type=p-tuning num-virtual-tokens=9"},
	{"lora-r=8 encoder-hidden-size=9",
	 "peft-type=p-tuning num-virtual-tokens=9 encoder-hidden-size=9"},
	{"lora-r=8 num-vectors=9", "lora-r=8 peft-type=vblora num-vectors=9"},
	{"lora-r=8 vector-length=9", "lora-r=8 peft-type=vblora vector-length=9"},
	{"lora-r=8 vblora-topk=9", "lora-r=8 peft-type=vblora vblora-topk=9"},
	{"peft-type=prefix-tuning num-virtual-tokens=9 grad-ckpt=full", "peft-type=prefix-tuning num-virtual-tokens=9"},
	{"trainable-tokens=9", "trainable-tokens=9 lora-r=8"},
	{"idle-adapters=2", "idle-adapters=2 lora-r=4"},
	{"rank-pattern=q_proj:8", "rank-pattern=q_proj:8 lora-r=4 lora-targets=q_proj"},
	{"rank-pattern=q_proj:8 lora-r=4 peft-type=vera", "rank-pattern=q_proj:8 lora-r=4 lora-targets=q_proj"},
	{"layers-to-transform=1", "layers-to-transform=1 lora-r=8"},
	{"lora-bias=all", "lora-bias=all lora-r=8"},
	{"use-dora=true lora-r=8 peft-type=loha", "use-dora=true lora-r=8 peft-type=dora"},
	{"autocast-adapter-dtype=false", "autocast-adapter-dtype=false lora-r=8"},
	{"lora-dropout=0.1", "lora-dropout=0.1 lora-r=8"},
	{"engine=megatron-deepspeed lora-r=8", "engine=megatron lora-r=8"},
	{"engine=megatron lora-r=8 qlora=true", "engine=hf lora-r=8 qlora=true"},
	{"engine=megatron lora-r=8 base-weights=int8", "engine=hf lora-r=8 base-weights=int8"},
	{"engine=megatron lora-r=8 use-dora=true", "engine=hf lora-r=8 use-dora=true"},
	{"engine=megatron lora-r=8 peft-type=vera", "engine=hf lora-r=8 peft-type=vera"},
	{"modules-to-save=lm_head", "modules-to-save=lm_head lora-r=8"},
	{"exclude-modules=q_proj", "exclude-modules=q_proj lora-r=8"},

	{"freeze=embed lora-r=8", "freeze=embed"},
	{"train=embed lora-r=8", "train=embed"},
	{"train-last=1 lora-r=8", "train-last=1"},
	{"engine=megatron freeze=embed", "engine=hf freeze=embed"},
	{"engine=megatron train=embed", "engine=hf train=embed"},
	{"engine=megatron train-last=2", "engine=hf train-last=2"},
	{"engine=megatron freeze-vision-tower=true", "engine=hf freeze-vision-tower=true"},
	{"engine=megatron freeze-projector=true", "engine=hf freeze-projector=true"},
	{"engine=megatron freeze-language-model=true", "engine=hf freeze-language-model=true"},

	{"fp8=tensorwise", "fp8=tensorwise precision=bf16"},
	{"fp8=rowwise precision=bf16 compute-capability=8.6",
	 "fp8=rowwise precision=bf16 compute-capability=8.9"},

	{"tp=2 gpus=2", "tp=2 gpus=2 engine=megatron"},
	{"pp=2 gpus=2", "pp=2 gpus=2 engine=megatron"},
	{"cp=2 gpus=2", "cp=2 gpus=2 engine=megatron"},
	{"ep=2 gpus=2", "ep=2 gpus=2 engine=megatron"},
	{"vpp=2", "vpp=2 engine=megatron"},
	{"sp=true", "sp=true engine=megatron"},
	{"pp-schedule=gpipe", "pp-schedule=gpipe engine=megatron"},
	{"cp-comm=a2a", "cp-comm=a2a engine=megatron"},
	{"recompute-num-layers=3 grad-ckpt=full",
	 "recompute-num-layers=3 grad-ckpt=full engine=megatron"},
	{"pp-first-layers=2", "pp-first-layers=2 engine=megatron"},
	{"pp-last-layers=2", "pp-last-layers=2 engine=megatron"},
	{"pp-embedding=true", "pp-embedding=true engine=megatron"},
	{"pp-loss=true", "pp-loss=true engine=megatron"},
	{"pp-layout=EtL", "pp-layout=EtL engine=megatron"},
	{"etp=2", "etp=2 engine=megatron"},
	{"mtp-num-layers=1", "mtp-num-layers=1 engine=megatron"},
	{"transformer-impl=local", "transformer-impl=local engine=megatron"},
	{"grad-reduce-in-bf16=true", "grad-reduce-in-bf16=true engine=megatron"},
	{"recompute-modules=mlp grad-ckpt=selective",
	 "recompute-modules=mlp grad-ckpt=selective engine=megatron"},
	{"engine=megatron recompute-modules=mlp",
	 "engine=megatron recompute-modules=mlp grad-ckpt=selective"},
	{"fp8-param-gather=true fp8=tensorwise precision=bf16",
	 "fp8-param-gather=true fp8=tensorwise precision=bf16 engine=megatron"},
	{"fp8-param-gather=true engine=megatron",
	 "fp8-param-gather=true engine=megatron fp8=tensorwise precision=bf16"},
	{"cuda-graph=true", "cuda-graph=true engine=megatron"},
	{"tp-comm-overlap=true engine=fsdp2 gpus=2 tp=2 zero=3", "tp-comm-overlap=true engine=megatron gpus=2 tp=2"},
	{"tp-comm-overlap=true engine=megatron", "tp-comm-overlap=true engine=megatron gpus=2 tp=2"},
	{"defer-embedding-wgrad=true", "defer-embedding-wgrad=true engine=megatron pp=2 gpus=2"},
	{"engine=megatron defer-embedding-wgrad=true",
	 "engine=megatron defer-embedding-wgrad=true pp=2 gpus=2"},
	{"offload-modules=core_attn", "offload-modules=core_attn engine=megatron"},
	{"engine=megatron offload-modules=core_attn grad-ckpt=full",
	 "engine=megatron offload-modules=core_attn"},
	{"moe-imbalance=1.5", "moe-imbalance=1.5 engine=megatron"},
	{"grad-ckpt=selective-attention engine=megatron", "grad-ckpt=selective engine=megatron"},
	{"engine=megatron pp=2 gpus=2 vpp=2 pp-schedule=gpipe",
	 "engine=megatron pp=2 gpus=2 vpp=2"},
	{"grad-ckpt=selective-op engine=megatron", "grad-ckpt=selective engine=megatron"},
	{"engine=megatron recompute-num-layers=3",
	 "engine=megatron recompute-num-layers=3 grad-ckpt=full"},
	{"engine=megatron-deepspeed zero=2 gpus=2", "engine=megatron-deepspeed zero=1 gpus=2"},
	{"engine=megatron-deepspeed fp8=tensorwise precision=bf16",
	 "engine=megatron-deepspeed precision=bf16"},
	{"engine=megatron gpus=6 tp=4", "engine=megatron gpus=8 tp=4"},
	{"engine=fsdp2 gpus=6 tp=4 zero=3", "engine=fsdp2 gpus=8 tp=4 zero=3"},
	{"loss-parallel=false", "loss-parallel=false engine=fsdp2"},

	{"objective=dpo engine=device-map gpus=2", "objective=dpo engine=fsdp2 gpus=2 zero=3"},
	{"objective=orpo loss=fused", "objective=orpo"},
	{"spare-loss=true", "spare-loss=true objective=dpo"},
	{"loss=outside objective=grpo", "loss=outside objective=kto"},
	{"loss=own-type objective=grpo", "loss=own-type objective=orpo"},
	{"loss=flash objective=dpo", "loss=flash objective=grpo"},
	{"objective=ppo engine=fsdp2 gpus=2 zero=3", "objective=ppo engine=deepspeed gpus=2 zero=2"},
	{"objective=ppo-apart engine=fsdp2 gpus=2 zero=3", "objective=ppo-apart engine=deepspeed gpus=2 zero=2"},
	{"objective=dpo reference=adapter", "objective=dpo reference=adapter lora-r=8"},
	{"objective=simpo reference=none", "objective=grpo reference=none"},
	{"compile-layers=true", "compile-layers=true compile=true"},
	{"completion-len=100", "completion-len=100 objective=grpo"},
	{"loss=cut engine=megatron", "loss=fused engine=megatron"},
	{"texts=3", "texts=3 objective=contrastive task=embedding"},
	{"texts-chunk=8", "texts-chunk=8 objective=contrastive"},
	{"texts-chunk=8 objective=contrastive optimizer-in-backward=true", "texts-chunk=8 objective=contrastive"},
	{"medusa-heads=2", "medusa-heads=2 objective=medusa"},
	{"medusa-layers=2", "medusa-layers=2 objective=medusa"},
	{"objective=medusa lora-r=8", "objective=medusa"},
	{"eval-new-tokens=9", "eval-new-tokens=9 predict-with-generate=true"},
	{"eval-beams=2", "eval-beams=2 predict-with-generate=true"},
	{"predict-with-generate=true engine=megatron", "predict-with-generate=true"},
	{"rollouts=engine", "rollouts=engine objective=grpo"},
	{"vllm-gpu-memory-utilization=0.3 rollouts=generate objective=grpo",
	 "vllm-gpu-memory-utilization=0.3 rollouts=engine objective=grpo"},
	{"vllm-gpu-memory-utilization=0.3", "vllm-gpu-memory-utilization=0.3 objective=grpo"},
	{"vllm-sleep=true", "vllm-sleep=true vllm-gpu-memory-utilization=0.3 objective=grpo"},
	{"ckpt-every=2", "ckpt-every=2 grad-ckpt=full"},
	{"ckpt-every=2 grad-ckpt=full engine=megatron", "ckpt-every=2 grad-ckpt=full"},
	{"loss-chunk=64 loss=fused", "loss-chunk=64 loss=tiled"},
	{"liger-kernels=all engine=megatron", "liger-kernels=all engine=fsdp2"},
	{"label-smoothing=0.1 objective=simpo", "label-smoothing=0.1"},
	{"label-smoothing=0.1 loss=chunked-nll", "label-smoothing=0.1 loss=plain"},
	{"label-smoothing=0.1 engine=megatron", "label-smoothing=0.1 engine=deepspeed"},
	{"neftune-noise-alpha=5 engine=megatron", "neftune-noise-alpha=5 engine=deepspeed"},
	{"class-weights=true engine=megatron", "class-weights=true engine=deepspeed"},
	{"output-router-logits=true engine=megatron", "output-router-logits=true engine=deepspeed"},
	{"resize-vocab=99 engine=megatron", "resize-vocab=99 engine=deepspeed"},
	{"optimizer-in-backward=true grad-accum=2", "optimizer-in-backward=true"},
	{"optimizer-in-backward=true engine=megatron", "engine=megatron"},
	{"ema=foreach engine=megatron", "ema=foreach engine=torchtune precision=bf16"},

	{"micro-batch=8 global-batch=4", "micro-batch=8 global-batch=8"},
	{"gpus=12 nodes=2 gpus-per-node=8", "gpus=16 nodes=2 gpus-per-node=8"},
	{"gpus=9 nodes=2", "gpus=8 nodes=2"},
	{"zero=2 engine=fsdp2", "zero=2 engine=deepspeed"},

	{"engine=device-map gpus=2 zero=3", "engine=device-map gpus=2"},
	{"engine=device-map gpus=2 offload-optimizer=cpu", "engine=device-map gpus=2"},
	{"engine=device-map gpus=2 offload-params=cpu", "engine=device-map gpus=2"},
	{"engine=device-map gpus=2 offload-activations=true", "engine=device-map gpus=2"},
	{"engine=device-map gpus=4 nodes=2", "engine=device-map gpus=4"},
	{"engine=device-map gpus=65", "engine=device-map gpus=64"},

	{"zero=2 gpus=2", "zero=2 gpus=2 engine=fsdp1"},
	{"engine=fsdp2 gpus=2 zero=1", "engine=fsdp2 gpus=2 zero=2"},
	{"engine=deepspeed gpus=4 nodes=2 zero=3 hybrid-shard=true",
	 "engine=fsdp2 gpus=4 nodes=2 zero=3 hybrid-shard=true"},
	{"engine=fsdp2 gpus=4 nodes=2 zero=2 hybrid-shard=true",
	 "engine=fsdp1 gpus=4 nodes=2 zero=3 hybrid-shard=true"},
	{"engine=fsdp2 gpus=4 zero=3 hybrid-shard=true",
	 "engine=fsdp2 gpus=4 nodes=4 zero=3 hybrid-shard=true"},
	{"engine=torchtune precision=amp-bf16", "engine=torchtune precision=bf16"},
	{"engine=fsdp2 gradient-as-bucket-view=true", "gradient-as-bucket-view=true"},
	{"engine=fsdp2 data-parallel=true", "data-parallel=true"},
	{"data-parallel=true gpus=4 nodes=2", "data-parallel=true gpus=4"},
	{"torch-autocast=true", "torch-autocast=true engine=deepspeed"},
	{"reduce-dtype=fp32", "reduce-dtype=fp32 engine=fsdp1"},
	{"no-sync=true", "no-sync=true engine=fsdp1"},
	{"backward-prefetch=none", "backward-prefetch=none engine=fsdp1"},
	{"fp32-grad-accum=true", "fp32-grad-accum=true engine=deepspeed zero=1"},
	{"engine=deepspeed fp32-grad-accum=true", "fp32-grad-accum=true engine=deepspeed zero=3"},
	{"reduce-bucket-size=1M", "reduce-bucket-size=1M engine=deepspeed"},
	{"overlap-comm=true", "overlap-comm=true engine=deepspeed"},
	{"early-states=true", "early-states=true engine=deepspeed"},
	{"fp32-copy-back=true", "fp32-copy-back=true engine=deepspeed"},
	{"max-live-parameters=1M", "max-live-parameters=1M engine=deepspeed"},
	{"prefetch-bucket-size=auto", "prefetch-bucket-size=auto engine=deepspeed"},
	{"param-persistence-threshold=0", "param-persistence-threshold=0 engine=deepspeed"},
	{"sub-group-size=1M", "sub-group-size=1M engine=deepspeed"},

	{"engine=megatron offload-optimizer=cpu", "engine=deepspeed zero=1 offload-optimizer=cpu"},
	{"engine=megatron offload-params=cpu", "engine=deepspeed zero=3 offload-params=cpu"},
	{"engine=megatron offload-activations=true", "engine=hf offload-activations=true"},
	{"offload-optimizer=nvme", "offload-optimizer=cpu"},
	{"offload-params=cpu", "offload-params=cpu engine=fsdp2 zero=3"},
	{"engine=deepspeed offload-optimizer=nvme", "engine=deepspeed offload-optimizer=nvme zero=1"},
	{"offload-gradients=true", "offload-gradients=true offload-optimizer=cpu"},
	{"offload-gradients=true offload-optimizer=cpu engine=deepspeed zero=2 gpus=2",
	 "offload-optimizer=cpu engine=deepspeed zero=2 gpus=2"},
	{"offload-gradients=true offload-optimizer=cpu grad-accum=2",
	 "offload-optimizer=cpu grad-accum=2"},
	{"optimizer-in-backward=true offload-optimizer=cpu", "offload-gradients=true offload-optimizer=cpu"},
	{"engine=deepspeed offload-params=cpu zero=2", "engine=deepspeed offload-params=cpu zero=3"},
	{"engine=fsdp2 offload-params=nvme zero=3", "engine=fsdp2 offload-params=cpu zero=3"},
	{"engine=fsdp1 offload-optimizer=cpu zero=3",
	 "engine=fsdp1 offload-optimizer=cpu offload-params=cpu zero=3"},
	{"engine=fsdp2 offload-optimizer=nvme offload-params=cpu zero=3",
	 "engine=deepspeed offload-optimizer=nvme offload-params=cpu zero=3"},

	{"max-split-size-mb=20", "max-split-size-mb=21"},
	{"max-split-size-mb=128 allocator=expandable_segments", "max-split-size-mb=128"},

	{"prefetch-factor=4", "prefetch-factor=4 dataloader-workers=2"},
};

static struct oom_plan plan_of(const char *words)
{
	struct oom_plan p = oom_plan_default();

	p.precision = OOM_FP32;         /* a plan is settled before it is held against the rules */
	set(&p, words);
	return p;
}

static void every_rule_is_broken_and_satisfied(void **state)
{
	size_t i = 0;

	(void)state;
	for (; oom_rule_at(i) && i < sizeof(cases) / sizeof(cases[0]); i++) {
		const struct oom_plan bad = plan_of(cases[i].breaks),
				      good = plan_of(cases[i].satisfies);
		struct oom_error err = {{0}};

		if (oom_plan_broken(&bad, NULL) != oom_rule_at(i))
			fail_msg("rule %zu is not the one that \"%s\" breaks: %s", i,
				 cases[i].breaks, oom_plan_broken(&bad, NULL) ?
				 oom_plan_broken(&bad, NULL)->sentence : "none");
		assert_int_equal(oom_plan_check(&bad, &err), OOM_ERR_INVALID);
		if (strlen(err.text) < 20 || strchr(err.text, '{'))
			fail_msg("rule %zu says \"%s\"", i, err.text);
		if (oom_plan_check(&good, &err))
			fail_msg("\"%s\": %s", cases[i].satisfies, err.text);
	}
	assert_null(oom_rule_at(i));
	assert_int_equal(i, sizeof(cases) / sizeof(cases[0]));
}

static void defaults_break_none(void **state)
{
	const struct oom_plan p = oom_plan_default();

	(void)state;
	assert_null(oom_plan_broken(&p, NULL));
}

/* Setting back what has no effect satisfies its rule, and touches nothing that has one. */
static void idle_knobs_are_set_back(void **state)
{
	size_t idle = 0;

	(void)state;
	for (size_t i = 0; oom_rule_at(i); i++) {
		struct oom_plan p = plan_of(cases[i].breaks), same = p;

		oom_plan_relax(&p);
		if (oom_rule_at(i)->idle) {
			assert_ptr_not_equal(oom_plan_broken(&p, NULL), oom_rule_at(i));
			idle++;
		} else {
			assert_ptr_equal(oom_plan_broken(&p, NULL), oom_rule_at(i));
		}
		p = same = plan_of(cases[i].satisfies);
		oom_plan_relax(&p);
		assert_memory_equal(&p, &same, sizeof(p));
	}
	assert_true(idle > 10);
}

static void values_stand_in_the_sentence(void **state)
{
	const struct oom_plan p = plan_of("gpus=9 nodes=2");
	struct oom_error err = {{0}};

	(void)state;
	oom_plan_check(&p, &err);
	assert_string_equal(err.text, "9 GPUs do not divide over 2 nodes");
}

/* A knob that is still to be chosen breaks nothing. */
static void what_is_open_does_not_count(void **state)
{
	const struct oom_plan qlora = plan_of("qlora=true"),
			      odd = plan_of("gpus=9 nodes=2 engine=deepspeed");

	(void)state;
	assert_null(oom_plan_broken(&qlora, oom_knob_find("lora-r")));
	assert_non_null(oom_plan_broken(&qlora, oom_knob_find("micro-batch")));
	assert_null(oom_plan_broken(&odd, oom_knob_find("gpus")));
}

static void what_breaks_a_rule_has_no_price(void **state)
{
	static const char config[] = "{\"model_type\":\"gpt2\",\"n_layer\":2}";
	struct oom_evaluator *ev = oom_evaluator_new();
	struct oom_error err = {{0}};
	struct oom_model *model;
	struct oom_keys keys = {0};
	struct oom_eval e;

	(void)state;
	assert_int_equal(oom_keys_parse(&keys, config, strlen(config), "test", &err), OOM_OK);
	assert_int_equal(oom_model_new(&model, &keys, &err), OOM_OK);
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		const struct oom_plan bad = plan_of(cases[i].breaks);
		struct oom_error why = {{0}};

		oom_plan_check(&bad, &why);
		assert_int_equal(oom_evaluate(ev, model, &bad, OOM_EVAL_FAST, &e, &err),
				 OOM_ERR_INVALID);
		assert_string_equal(err.text, why.text);
	}
	oom_evaluator_free(ev);
	oom_model_free(model);
	oom_keys_release(&keys);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(every_rule_is_broken_and_satisfied),
		cmocka_unit_test(defaults_break_none),
		cmocka_unit_test(idle_knobs_are_set_back),
		cmocka_unit_test(values_stand_in_the_sentence),
		cmocka_unit_test(what_is_open_does_not_count),
		cmocka_unit_test(what_breaks_a_rule_has_no_price),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
