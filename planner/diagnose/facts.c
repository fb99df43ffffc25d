/* Facts of a text that stand in no message: the shape that options give a model, how full a log says the host was, options
 * that nothing but a training has. And the sentences that tell them. */
#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tables.h"

static const double GIB = 1073741824.0;

/* Dashes and underscores are one to the parsers of options. */
static bool same_name(const char *p, const char *end, const char *name)
{
	for (; *name; name++, p++)
		if (p >= end || (*name == '_' ? *p != '_' && *p != '-' : *p != *name))
			return false;
	return p == end || !(isalnum((unsigned char)*p) || *p == '_' || *p == '-');
}

/* Where the value of an option or a key of that name begins; NULL: it is not there. */
static const char *value_of(const char *begin, const char *end, const char *name)
{
	for (const char *p = begin; p < end; p++) {
		if (*p != *name || (p > begin && (isalnum((unsigned char)p[-1]) || p[-1] == '_' || (p[-1] == '-' && p - 1 > begin && p[-2] != '-'))) || !same_name(p, end, name))
			continue;
		for (p += strlen(name); p < end && strchr(" =:\"'", *p);)
			p++;
		return p;
	}
	return NULL;
}

/* Its number by the first of these names that the text has; 0: none, or a variable of a script. */
static double number_of(const char *begin, const char *end, const char *const *names)
{
	for (; *names; names++) {
		const char *const p = value_of(begin, end, *names);

		if (p && p < end && isdigit((unsigned char)*p))
			return strtod(p, NULL);
	}
	return 0;
}

/* Divided by options among ranks, or perhaps so: another number than one, or a variable. */
static bool divides(const char *begin, const char *end)
{
	static const char *const names[] = {"tensor_model_parallel_size", "pipeline_model_parallel_size", "expert_model_parallel_size", "use_distributed_optimizer", "data_parallel_sharding_strategy"};

	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
		const char *const p = value_of(begin, end, names[i]);

		if (p && !(p + 1 < end && *p == '1' && !isdigit((unsigned char)p[1])))
			return true;
	}
	return false;
}

/* By the arguments of Megatron-LM or the keys of a config.json: four matrices of hidden x hidden in attention, fewer where
 * heads share keys and values, and two of the MLP, three where it has a gate (Narayanan et al. 2021, arXiv:2104.04473,
 * equation 2 has the first form; add_network_size_args() in megatron/training/arguments.py the defaults). */
double oom_parameters_of_shape(const char *begin, const char *end)
{
	static const char *const layers_of[] = {"num_layers", "num_hidden_layers", "'n_layers'", NULL}, *const hidden_of[] = {"hidden_size", "'dim'", NULL}, *const inner_of[] = {"ffn_hidden_size", "intermediate_size", NULL},
				 *const heads_of[] = {"num_attention_heads", NULL}, *const groups_of[] = {"num_query_groups", "num_key_value_heads", NULL},
				 *const words_of[] = {"vocab_size", "padded_vocab_size", NULL};
	const double layers = number_of(begin, end, layers_of), hidden = number_of(begin, end, hidden_of), inner = number_of(begin, end, inner_of), heads = number_of(begin, end, heads_of),
		     groups = number_of(begin, end, groups_of), words = number_of(begin, end, words_of);
	/* of Llama's own parameters: two thirds of four times the width, rounded up (model.py of meta-llama/llama, FeedForward) */
	const bool llama = value_of(begin, end, "'multiple_of'"), gated = llama || value_of(begin, end, "swiglu") || value_of(begin, end, "intermediate_size");

	/* whatever the text says is finite, and no model's */
	if (layers < 2 || layers > 400 || hidden < 512 || hidden > 65536 || !(inner <= 64 * hidden) || !(words <= 1e7) || divides(begin, end) || value_of(begin, end, "num_experts") || value_of(begin, end, "num_local_experts"))
		return 0;
	return layers * hidden * (2 * hidden * (1 + (groups > 0 && heads >= groups ? groups / heads : 1)) + (gated ? 3 : 2) * (inner > 0 ? inner : llama ? hidden * 8 / 3 : 4 * hidden)) +
	       words * hidden * (value_of(begin, end, "untie_embeddings_and_output_weights") ? 2 : 1);
}

/* "no memory leak", "fixed a leak": the words before it in its sentence, a few of them, take it back. */
static bool is_denied(const char *sentence, const char *p)
{
	static const char *const words[] = {"no ", "No ", "not ", "n't ", "never ", "ithout ", "ixed ", "ixes "};
	const char *const from = p - sentence > 24 ? p - 24 : sentence;

	for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++)
		if (oom_text_find(from, p, words[i]))
			return true;
	return false;
}

/* Who watched it fill: on the host, unless the sentence is of the card. */
static bool grew(const char *begin, const char *end)
{
	static const char *const words[] = {"keeps increas", "keep increas", "keeps grow", "keeps rising", "gradually increas", "increasing for every", "increases every", "increases each", "increases with each", "of memory per iteration", "emory leak",
					    "usage increas", "\xe9\x80\x90\xe6\xb8\x90\xe5\x8f\x98\xe5\xa4\xa7" /* grows by and by */, "\xe6\x8c\x81\xe7\xbb\xad\xe5\xa2\x9e\xe5\xa4\xa7" /* keeps growing */,
					    "\xe4\xb8\x80\xe7\x9b\xb4\xe4\xb8\x8a\xe6\xb6\xa8", "\xe4\xb8\x8d\xe6\x96\xad\xe5\xa2\x9e"},
				 *const cards[] = {"GPU", "gpu", "VRAM", "vram", "CUDA", "\xe6\x98\xbe\xe5\xad\x98" /* a card's */};

	for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++)
		for (const char *p = begin; (p = oom_text_find(p, end, words[i])); p++) {
			const char *const from = oom_sentence_begin(begin, p), *const to = oom_sentence_end(p, end, 1);
			bool of_card = false;

			for (size_t k = 0; k < sizeof(cards) / sizeof(cards[0]); k++)
				of_card |= oom_text_find(from, to, cards[k]) != NULL;
			if (!of_card && !is_denied(from, p) && !oom_text_find(from, to, "while it load") && !oom_text_find(from, to, "during load"))
				return true;
		}
	return false;
}

/* psutil's numbers, as see_memory_usage() of deepspeed/runtime/utils.py prints them: used is the total less what is available. */
void oom_decode_host_use(struct oom_crash *c, const char *begin, const char *end)
{
	const char *const p = oom_text_last(begin, end, "CPU Virtual Memory:"), *const stop = p ? oom_line_end(p, end) : NULL, *const used = p ? oom_text_find(p, stop, "used = ") : NULL,
		   *const percent = p ? oom_text_find(p, stop, "percent = ") : NULL, *const card = p ? oom_text_last(begin, p, " MA ") : NULL;
	double share, gib;

	c->host_used = c->host_total = 0;
	oom_decode_helped(c, begin, end);
	c->grew = oom_runtime_is(c, OOM_RUNTIME_HOST) && grew(begin, end);
	c->pretrains = oom_text_find(begin, end, "continuing pretraining") || oom_text_find(begin, end, "continue pretraining") || oom_text_find(begin, end, "continual pre") || oom_text_find(begin, end, "retrain from scratch") ||
		       oom_text_find(begin, end, "rain from scratch") || oom_text_find(begin, end, "full fine-tun") || oom_text_find(begin, end, "full finetun");
	c->sub_groups = oom_text_find(begin, end, "_optimizer_step(sub_group_id)");
	if (!used || !percent)
		return;
	gib = strtod(used + strlen("used = "), NULL);
	share = strtod(percent + strlen("percent = "), NULL);
	if (!(gib > 0 && gib < 1e6 && share >= 0.1 && share <= 100))
		return;
	c->host_used = (uint64_t)(gib * GIB);
	c->host_total = (uint64_t)(gib / share * 100 * GIB);
	/* next to nothing of the weights is on the card: they and their states wait on the host */
	if (c->zero && c->parameters && card && strtod(card + strlen(" MA "), NULL) * GIB * 4 < (double)c->parameters * 2)
		c->offloads = true;
}

/* What only a training is told. */
bool oom_told_to_train(const char *begin, const char *end)
{
	static const char *const names[] = {"gradient_accumulation_steps", "num_train_epochs", "per_device_train_batch_size", "lr_scheduler_type", "warmup_ratio", "warmup_steps", "weight_decay"};

	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
		for (const char *p = begin; (p = oom_text_find(p, end, "--")); p += 2)
			if (same_name(p + 2, end, names[i]))
				return true;
	return false;
}

/* All weights train, undivided by what the text shows, and no number of the message or name says how large the card is.  The
 * size was told by options, not by what people write. */
bool oom_states_beyond_cards(const struct oom_crash *c, enum oom_crash_work work)
{
	const uint64_t others = OOM_SET(OOM_LEVER_ADAPTER) | OOM_SET(OOM_LEVER_QUANT) | OOM_SET(OOM_LEVER_OPTIMIZER) | OOM_SET(OOM_LEVER_SHARD);

	return work == OOM_WORK_TRAINING && c->trains && (c->by_shape || c->pretrains) && !c->known[OOM_CRASH_TOTAL] && !c->known[OOM_CRASH_TRIED] && c->card_said <= 0 && !c->splits && !c->stepped && !c->priced &&
	       !(c->set & others) && oom_runtime_is(c, OOM_RUNTIME_TORCH) && 16 * (double)c->parameters > 80e9;
}

/* ---- what they say ---- */

static uint64_t smallest(const struct oom_crash *c)
{
	uint64_t least = UINT64_MAX;

	for (size_t i = 0; i < c->n_processes; i++)
		least = c->process[i].bytes < least ? c->process[i].bytes : least;
	return least;
}

/* Processes that hold as much as one another, to a tenth and more than a context, of a training with ranks: they are its ranks. */
bool oom_ranks_share_card(const struct oom_crash *c)
{
	uint64_t most = 0;

	for (size_t i = 0; i < c->n_processes; i++)
		most = c->process[i].bytes > most ? c->process[i].bytes : most;
	return c->n_processes > 2 && (c->trains || c->rank >= 0) && oom_several_cards(c) && smallest(c) >= (uint64_t)1 << 30 && (double)smallest(c) > 0.85 * (double)most &&
	       c->known[OOM_CRASH_ALLOCATED] && (double)c->bytes[OOM_CRASH_ALLOCATED] < 1.05 * (double)most && (double)c->bytes[OOM_CRASH_ALLOCATED] > 0.8 * (double)smallest(c);
}

static void ranks_on_one(const struct oom_crash *c, enum oom_cause cause, struct oom_crash_answer *a)
{
	char *const out = cause == OOM_CAUSE_OTHER_PROCESS && oom_ranks_share_card(c) ? oom_evidence_slot(a) : NULL;

	if (out)
		snprintf(out, sizeof(a->evidence[0]), "%zu processes hold about as much as one another there, %.1f GiB and more: the others are ranks of this run, which put the same things on the same card", c->n_processes, (double)smallest(c) / 1073741824);
}

static void host_was_full(const struct oom_crash *c, enum oom_cause cause, struct oom_crash_answer *a)
{
	char *const out = cause == OOM_CAUSE_HOST_RAM && c->host_total ? oom_evidence_slot(a) : NULL;

	if (out)
		snprintf(out, sizeof(a->evidence[0]), "%.2f of the host's %.1f GiB (%.1f %%) were in use when the log printed it last", (double)c->host_used / GIB, (double)c->host_total / GIB,
			 100 * (double)c->host_used / (double)c->host_total);
}

bool oom_host_grew(const struct oom_crash *c, enum oom_crash_work work, enum oom_cause cause)
{
	return cause == OOM_CAUSE_HOST_RAM && ((work == OOM_WORK_TRAINING && (c->stepped || c->grew)) || (work == OOM_WORK_DATA && c->grew)) && !c->unified && !oom_host_array(c);
}

/* The run grew: what it starts with fitted. */
static void host_grew(const struct oom_crash *c, enum oom_crash_work work, enum oom_cause cause, struct oom_crash_answer *a)
{
	char *const out = oom_host_grew(c, work, cause) ? oom_evidence_slot(a) : NULL;

	if (out)
		snprintf(out, sizeof(a->evidence[0]), "%s that filled the host: samples that the dataset caches, "
			 "copies of its Python objects in every worker, results or losses kept in a list", c->grew ? "it was seen to grow, so it is what is kept from step to step" : "steps went through before it, so it is what grows with them");
}

/* Of a card that the text does not name: what all of it takes, where that is more than one of 80 GB holds; in 16 bits alone half. */
static void of_unknown_card(const struct oom_crash *c, enum oom_crash_work work, struct oom_crash_answer *a)
{
	char *const out = oom_states_beyond_cards(c, work) ? oom_evidence_slot(a) : NULL;

	if (out)
		snprintf(out, sizeof(a->evidence[0]), "%.3g B parameters, by the model's %s, x 16 bytes (weights, gradients, AdamW's states) = %.1f GiB before any activation, and nothing in the text divides them: "
			 "no card of 80 GB holds as much, whatever the batch", (double)c->parameters / 1e9, c->by_shape ? "shape" : "name", 16 * (double)c->parameters / GIB);
}

/* Frozen weights in 4 bits take most of the card, and nothing divides them: 4.127 bits a parameter with scales that are
 * quantised as well (Dettmers et al. 2023, arXiv:2305.14314, section 3), embeddings and norms in 16. */
static double four_bits(const struct oom_crash *c)
{
	const uint64_t both = OOM_SET(OOM_LEVER_ADAPTER) | OOM_SET(OOM_LEVER_QUANT);
	const double need = 0.53 * (double)c->parameters, total = (double)c->bytes[OOM_CRASH_TOTAL];

	return oom_crash_work(c) == OOM_WORK_TRAINING && (c->set & both) == both && oom_runtime_is(c, OOM_RUNTIME_TORCH) && !c->splits && !c->priced && oom_told(c, "load_in_8bit") <= 0 && total > 0 && need > 0.75 * total &&
	       (double)c->bytes[OOM_CRASH_ALLOCATED] > 0.9 * (need < total ? need : total) ? need : 0;
}

static void of_four_bits(const struct oom_crash *c, struct oom_crash_answer *a)
{
	const double need = four_bits(c);
	char *const out = need > 0 ? oom_evidence_slot(a) : NULL;

	if (out)
		snprintf(out, sizeof(a->evidence[0]), "%.3g B parameters, by the model's name, are %.1f GiB in 4 bits with their scales, of this card's %.2f: every card holds all of them, whatever the batch", (double)c->parameters / 1e9, need / GIB,
			 (double)c->bytes[OOM_CRASH_TOTAL] / GIB);
}

void oom_observe_facts(const struct oom_crash *c, enum oom_crash_work work, enum oom_cause cause, struct oom_crash_answer *a)
{
	host_was_full(c, cause, a);
	host_grew(c, work, cause, a);
	of_unknown_card(c, work, a);
	ranks_on_one(c, cause, a);
	if (cause == OOM_CAUSE_TOO_LARGE)
		of_four_bits(c, a);
}

/* States that wait on the host and are larger than it: no fewer processes and no other way of loading helps.  ZeRO-3 with
 * its states on the host keeps 16 bytes of each parameter there (estimate_zero3_model_states_mem_needs of
 * deepspeed/runtime/zero/stage3.py). */
bool oom_states_exceed_host(const struct oom_crash *c)
{
	return c->offloads && !c->disks && c->parameters && c->host_total && (double)c->parameters * 16 > (double)c->host_total && !(c->set & OOM_SET(OOM_LEVER_ADAPTER));
}

/* ZeRO-3 divides what is loaded once it knows of it: TrainingArguments made before from_pretrained
 * (huggingface.co/docs/transformers/deepspeed, "ZeRO-3"), under a launcher of ranks. */
static bool loaded_undivided(const struct oom_crash *c)
{
	return (c->set & OOM_SET(OOM_LEVER_SHARD)) && c->zero && !c->second_stage && c->trains && (c->phase == OOM_CRASH_LOAD || c->phase == OOM_CRASH_TO_DEVICE) && c->known[OOM_CRASH_TOTAL] &&
	       2 * (double)c->parameters > 0.9 * (double)c->bytes[OOM_CRASH_TOTAL] && c->bytes[OOM_CRASH_ALLOCATED] > c->bytes[OOM_CRASH_TOTAL] / 2;
}

const char oom_who_grows[] = "see who grows (ps -o pid,rss,args, every hundred steps): of workers, lists and dicts of the dataset as NumPy or Arrow arrays and no cache in it; of the main process, losses as .item(), no outputs kept in a list";

void oom_fixes_of_facts(const struct oom_crash *c, enum oom_cause cause, struct oom_crash_answer *a)
{
	char own[300];

	oom_fix_helped(c, a);
	if (loaded_undivided(c))
		oom_fix_add(a, "", "see that ZeRO-3 is at work while the model is loaded: TrainingArguments with its deepspeed file before from_pretrained, under deepspeed, torchrun or accelerate launch: this card holds the weights undivided");
	/* huggingface.co/docs/bitsandbytes/fsdp_qlora */
	if (cause == OOM_CAUSE_TOO_LARGE && four_bits(c) > 0)
		oom_fix_add(a, "", "divide the base among the cards: FSDP (or ZeRO-3) with bnb_4bit_quant_storage of the type that is computed in, which makes its weights parameters that are sharded; or a smaller model");
	/* of DeepSpeed's states on the host a step takes one group of parameters at a time (config-json: sub_group_size, by default 1e9) */
	if (c->sub_groups && c->phase == OOM_CRASH_OPTIMIZER && cause == OOM_CAUSE_TOO_LARGE)
		oom_fix_add(a, "", "sub_group_size lower in zero_optimization (1e9 -> 1e8): the step works on so many parameters at once; with offload_optimizer on the CPU, DeepSpeedCPUAdam, which takes none of them to the card");
	/* docs.pytorch.org/docs/stable/data.html, "Multi-process data loading": pages of Python objects are copied as workers count
	 * references (pytorch#13246) */
	if (c->grew && oom_host_grew(c, oom_crash_work(c), cause))
		oom_fix_add(a, "", oom_who_grows);
	if (cause != OOM_CAUSE_HOST_RAM || !oom_states_exceed_host(c))
		return;
	oom_fix_lever(c, a, "", OOM_LEVER_ADAPTER);
	snprintf(own, sizeof(own), "a host with more than %.0f GiB: as much do 16 bytes of each parameter take there, this one has %.0f; or offload_optimizer: {device: nvme}, which keeps states on a disk",
		 ceil((double)c->parameters * 16 / GIB), floor((double)c->host_total / GIB));
	oom_fix_add(a, "", own);
}
