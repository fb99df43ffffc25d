/* What changed in memory when: one row for each, and the one place that applies them.
 *
 * Knobs' default words are those that a library gives another meaning later ("plain", "auto"): a
 * version decides what they come to, a word that says more than the default is left alone.  Of rows
 * about one knob the first that applies has changed what the others look for. */
#include "oomplan/generations.h"

#include <string.h>

#include "oomplan/engine.h"
#include "oomplan/option.h"

#define TORCH(major, minor) "torch", OOM_VERSION(major, minor)
#define TRANSFORMERS(major, minor) "transformers", OOM_VERSION(major, minor)
#define BITSANDBYTES(major, minor) "bitsandbytes", OOM_VERSION(major, minor)
#define PEFT(major, minor) "peft", OOM_VERSION(major, minor)
#define DEEPSPEED(major, minor) "deepspeed", OOM_VERSION(major, minor)
#define ACCELERATE(major, minor) "accelerate", OOM_VERSION(major, minor)
#define UPCAST_ALL "huggingface/accelerate#3848 (1.13); utils/fsdp_utils.py fsdp2_prepare_model 1.6 to 1.12, model.to(torch.float32)"

static const struct oom_generation rows[] = {
	{TRANSFORMERS(5, 0), "precision", "auto", "fp32",
	 "weights are loaded in fp32 unless a dtype is asked for",
	 "modeling_utils.py from_pretrained: torch_dtype=None; dtype=\"auto\" from 5.0 on", false, NULL, OOM_ABOUT_ALL, NULL},
	{TRANSFORMERS(5, 0), "use-reentrant", "auto", "true",
	 "gradient checkpointing is reentrant unless told otherwise",
	 "huggingface/transformers#43203 (5.0); pinned to true by #28538", false, "false", OOM_ABOUT_ALL, NULL},
	{TRANSFORMERS(5, 0), "moe-experts", "fused", "separate",
	 "every expert is a module of linear layers, run one after another",
	 "modeling_mixtral.py 4.45 MixtralSparseMoeBlock; integrations/moe.py since 5.0", false, NULL, OOM_ABOUT_ALL, NULL},
	{TRANSFORMERS(4, 46), "loss", "plain", "sliced",
	 "logits are upcast as a whole, then sliced and copied for the shift by one token",
	 "modeling_llama.py 4.45 LlamaForCausalLM.forward; loss/loss_utils.py from 4.46 on", false, NULL, OOM_ABOUT_ALL, NULL},
	{TRANSFORMERS(4, 49), "loss", "plain", "sliced-apart",
	 "the loss upcasts, slices and copies logits while the model holds its own",
	 "loss/loss_utils.py 4.46 ForCausalLMLoss; huggingface/transformers#35646", false, NULL, OOM_ABOUT_LABELS, NULL},
	{TRANSFORMERS(4, 49), "loss", "plain", "own-type",
	 "log-probabilities of preferences are a log_softmax of all logits, which stays for the backward",
	 "trl/trainer/dpo_trainer.py 0.14 get_batch_logps; huggingface/trl#2799 (0.15, days before transformers 4.49)",
	 false, NULL, OOM_ABOUT_ANSWERS, NULL},
	{TRANSFORMERS(4, 46), "loss", "in-place", "sliced-in-place",
	 "kernels that write the gradient in the logits' place get the upcast and copied ones",
	 "modeling_llama.py 4.45, whose CrossEntropyLoss Liger's monkey_patch.py replaces", false, NULL, OOM_ABOUT_ALL, NULL},
	{TRANSFORMERS(4, 49), "loss", "in-place", "sliced-apart-in-place",
	 "the same, while the model holds its own logits",
	 "loss/loss_utils.py 4.46 ForCausalLMLoss; huggingface/transformers#35646", false, NULL, OOM_ABOUT_LABELS, NULL},
	{TRANSFORMERS(4, 48), "kv-repeat", "grouped", "classes",
	 "keys and values are copied to all heads before SDPA, in Mistral, Mixtral, Qwen2, Phi-3 and the like before flash_attn, too",
	 "modeling_mistral.py, modeling_qwen2.py 4.47 *FlashAttention2, *SdpaAttention; huggingface/transformers#35235", false, NULL, OOM_ABOUT_ALL, NULL},
	{TRANSFORMERS(4, 54), "kv-repeat", "grouped", "sdpa",
	 "keys and values are copied to all heads before SDPA",
	 "huggingface/transformers#39412: enable_gqa", false, NULL, OOM_ABOUT_ALL, NULL},
	{TORCH(2, 5), "kv-repeat", "grouped", "sdpa",
	 "keys and values are copied to all heads before SDPA, which has no enable_gqa",
	 "integrations/sdpa_attention.py use_gqa_in_sdpa", false, NULL, OOM_ABOUT_ALL, NULL},
	{TORCH(2, 5), "math-sdp-fp32", "true", "false",
	 "attention without a fused kernel computes in the type of its inputs",
	 "attention.cpp _scaled_dot_product_attention_math @008887d; allowFP16BF16ReductionMathSDP from 2.5 on", false, NULL, OOM_ABOUT_ALL, NULL},
	{TRANSFORMERS(4, 40), "rope-tables", "none", "llama",
	 "every layer keeps cosines and sines of all positions that the config allows",
	 "modeling_llama.py 4.39 LlamaRotaryEmbedding _cos_cached, whose notice says so", false, NULL, OOM_ABOUT_ALL, NULL},
	{TRANSFORMERS(4, 42), "rope-tables", "none", "mistral",
	 "the same in Mistral and later copies of Llama's first class",
	 "huggingface/transformers#30642", false, NULL, OOM_ABOUT_ALL, NULL},
	{TRANSFORMERS(4, 45), "rope-tables", "none", "qwen",
	 "the same in Qwen2, StableLM, Starcoder2 and Mixtral",
	 "huggingface/transformers#32617", false, NULL, OOM_ABOUT_ALL, NULL},
	{TRANSFORMERS(4, 48), "rope-tables", "none", "mixtral",
	 "the same in Mixtral",
	 "modeling_mixtral.py 4.47 MixtralRotaryEmbedding _set_cos_sin_cache", false, NULL, OOM_ABOUT_ALL, NULL},
	{TRANSFORMERS(4, 36), "attn", "sdpa", "eager",
	 "models write their attention out unless told otherwise",
	 "huggingface/transformers#26572: torch's scaled_dot_product_attention by default", false, NULL, OOM_ABOUT_ALL, NULL},
	{TORCH(2, 0), "attn", "sdpa", "eager",
	 "there is no fused attention",
	 "torch 2.0 release notes: scaled_dot_product_attention", false, NULL, OOM_ABOUT_ALL, NULL},
	{TORCH(2, 0), "optimizer", "adamw", "adamw-loop",
	 "AdamW steps tensor by tensor",
	 "torch 2.0 release notes: foreach implementations by default on CUDA (#92306)", true, NULL, OOM_ABOUT_ALL, NULL},
	{TORCH(2, 1), "optimizer", "adamw", "adamw-two-lists",
	 "AdamW's foreach implementation makes two lists of temporaries",
	 "pytorch/pytorch#97712, #104780, #104898 (2.1)", true, NULL, OOM_ABOUT_ALL, NULL},
	{TORCH(2, 0), "zero-grad", "none", "zeros",
	 "zero_grad leaves gradients of zeros behind (transformers' Trainer: not from 4.27 on)",
	 "pytorch/pytorch#92731; huggingface/transformers#22136", true, NULL, OOM_ABOUT_ALL, NULL},
	{TORCH(1, 11), "keep-softmax-inputs", "false", "true",
	 "softmax and log_softmax keep their inputs beside their results, attention's scores and the loss's logits among them",
	 "pytorch/pytorch#64000, #66018: derivatives.yaml names self's type in self's place", false, NULL, OOM_ABOUT_ALL, NULL},
	{TORCH(1, 13), "lazy-modules", "true", "false",
	 "the context holds every kernel of PyTorch's libraries from the start",
	 "pytorch/pytorch#85692, #86509: CUDA_MODULE_LOADING=LAZY from 1.13 on", false, NULL, OOM_ABOUT_ALL, NULL},
	{TRANSFORMERS(5, 0), "force-t5-tie", "true", "false",
	 "T5, mT5, UMT5 and UDOP have a head of their own where their config says so (T5 1.1, FLAN-T5, mT5)",
	 "models/t5/configuration_t5.py 4.57, tie_word_embeddings passed on", false, NULL, OOM_ABOUT_ALL, NULL},
	{TRANSFORMERS(5, 17), "t5-attention", "auto", "written",
	 "T5 and its likes write their attention out, with a softmax in fp32; merged on 2026-07-30, read in 5.12 and 5.17",
	 "huggingface/transformers#47014: modeling_t5.py eager_attention_forward", false, "interface", OOM_ABOUT_ALL, NULL},
	{TRANSFORMERS(5, 0), "quantise-derived", "false", "true",
	 "bitsandbytes' layers replace those of derived classes, too (Falcon's); read in 4.5x and 5.12, not in between",
	 "integrations/bitsandbytes.py: isinstance(module, nn.Linear), in 5.12 type(module) is nn.Linear", false, NULL, OOM_ABOUT_ALL, NULL},
	{TRANSFORMERS(5, 0), "quantised-load", "auto", "meta",
	 "a node's first rank quantises a model for FSDP into its memory, the others have none of it",
	 "modeling_utils.py 4.57 _load_state_dict_into_meta_model: param_to = \"meta\"", false, "card", OOM_ABOUT_ALL, NULL},
	{TRANSFORMERS(4, 45), "quantised-load", "meta", "host",
	 "every rank has a quantised model's weights in host memory until FSDP moves them to the card",
	 "huggingface/transformers#33154 (4.45)", false, NULL, OOM_ABOUT_ALL, NULL},
	{BITSANDBYTES(0, 43), "keep-base-inputs", "false", "true",
	 "frozen 4-bit layers keep their inputs (mended in 0.43.2: 0.42 stands for 0.43.0 and 0.43.1 too)",
	 "bitsandbytes CHANGELOG 0.43.2", false, NULL, OOM_ABOUT_ALL, NULL},
	{PEFT(0, 11), "autocast-adapter-dtype", "true", "false",
	 "adapters have the type of a 16-bit base",
	 "huggingface/peft#1706 (0.11.0)", false, NULL, OOM_ABOUT_ALL, NULL},
	{PEFT(0, 6), "autocast-adapter-dtype", "false", "true",
	 "adapters are made in fp32 and only moved to their base's device",
	 "tuners/lora.py 0.5 update_layer; huggingface/peft#915, #928 (0.6.0)", false, NULL, OOM_ABOUT_ALL, NULL},
	{DEEPSPEED(0, 17), "torch-autocast", "true", "false",
	 "there is no autocast within DeepSpeed: amp is 16-bit weights and an fp32 master",
	 "deepspeedai/DeepSpeed#6993 (0.17.2)", false, NULL, OOM_ABOUT_ALL, NULL},
	{DEEPSPEED(0, 17), "fp32-copy-back", "false", "true",
	 "stages 1 and 2 bring what the host has stepped back in fp32 and cast it on the card: 4 bytes of a rank's parameters beside all in 16 bit",
	 "deepspeedai/DeepSpeed#7309 (0.17.0)", false, NULL, OOM_ABOUT_ALL, "deepspeed"},
	{DEEPSPEED(0, 14), "fp32-copy-back", "true", "false",
	 "what the host has stepped is cast there, and comes back in 16 bit",
	 "deepspeedai/DeepSpeed#5301 (0.14.1; 0.13 stands for 0.14.0 too)", false, NULL, OOM_ABOUT_ALL, "deepspeed"},
	{DEEPSPEED(0, 14), "early-states", "false", "true",
	 "an optimizer step without gradients makes the states with the engine",
	 "deepspeedai/DeepSpeed#5104 (0.14.1)", false, NULL, OOM_ABOUT_ALL, "deepspeed"},
	{ACCELERATE(1, 13), "precision", "bf16-amp", "amp-bf16",
	 "the whole model is kept in fp32 shards, frozen weights too", UPCAST_ALL, false, NULL, OOM_ABOUT_ALL, "fsdp2"},
	{ACCELERATE(1, 13), "precision", "fp16-amp", "amp-fp16",
	 "the same of models in fp16", UPCAST_ALL, false, NULL, OOM_ABOUT_ALL, "fsdp2"},
	{ACCELERATE(1, 13), "precision", "auto-amp", "amp-bf16",
	 "the same of models whose config says the type", UPCAST_ALL, false, NULL, OOM_ABOUT_ALL, "fsdp2"},
};

enum { N_ROWS = sizeof(rows) / sizeof(rows[0]) };

const struct oom_generation *oom_generation_at(size_t i)
{
	return i < N_ROWS ? &rows[i] : NULL;
}

bool oom_plan_dated(const struct oom_plan *p)
{
	return p->transformers || p->torch || p->bitsandbytes || p->peft || p->deepspeed || p->accelerate;
}

static bool runs_under(struct oom_plan *p, const char *engine)
{
	char word[40];

	return !engine || !strcmp(oom_plan_get(p, oom_knob_find("engine"), word, sizeof(word)), engine);
}

/* A loss of labels is not that of trainers that give the model none (trl/trainer/dpo_trainer.py concatenated_forward;
 * transformers/trainer.py compute_loss). */
static bool is_about(const struct oom_plan *p, const struct oom_generation *g)
{
	switch ((enum oom_generation_of)g->of) {
	case OOM_ABOUT_LABELS: return p->objective == OOM_METHOD_SFT && !(p->label_smoothing > 0);
	case OOM_ABOUT_ANSWERS: return OOM_METHODS_OF_PREFERENCES >> p->objective & 1;
	default: return true;
	}
}

/* What it makes of what the plan says of its knob now; NULL: nothing. */
static const char *made_of(struct oom_plan *p, const struct oom_generation *g)
{
	const int64_t version = !runs_under(p, g->engine) || !is_about(p, g) ? 0 : *oom_plan_field(p, oom_knob_find(g->library));
	const char *to = version && version < g->before ? g->to : version ? g->since : NULL;
	char word[40];

	return to && !strcmp(oom_plan_get(p, oom_knob_find(g->knob), word, sizeof(word)), g->from) ? to : NULL;
}

const struct oom_generation *oom_plan_aged(struct oom_plan *p, const char *knob)
{
	for (size_t i = 0; oom_plan_dated(p) && i < N_ROWS; i++)
		if (!strcmp(rows[i].knob, knob) && made_of(p, &rows[i]) == rows[i].to)
			return &rows[i];
	return NULL;
}

static void apply(struct oom_plan *p, const struct oom_generation *g)
{
	const char *to = made_of(p, g);

	/* Megatron brings optimizers of its own */
	if (to && !(g->of_torch && oom_engine_at((size_t)p->engine)->degrees))
		oom_plan_set(p, oom_knob_find(g->knob), to, NULL);
}

void oom_plan_resolve(struct oom_plan *p)
{
	if (!oom_plan_dated(p))
		return;
	for (size_t i = 0; i < N_ROWS; i++)
		apply(p, &rows[i]);
	if (p->torch)
		p->torch_named = p->torch;
	p->transformers = p->torch = p->bitsandbytes = p->peft = p->deepspeed = p->accelerate = 0;
}
