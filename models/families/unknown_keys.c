/* Which keys of a config.json its model type does not have: misspelt ones, and those of a newer
 * version, would otherwise be ignored in silence.
 *
 * Known are the type's own (data/model_types.jsonl), the names every configuration has, and names
 * that never move memory (transformers configuration_utils.py, generation keys of version 4,
 * initialisers, token ids), or that families read though no class lists them any more (rotary_pct: GPT-NeoX's
 * partial_rotary_factor before transformers 5). */
#include <stdio.h>
#include <string.h>

#include "model.h"

static const char *const harmless[] = {
	"architectures", "auto_map", "dtype", "torch_dtype", "transformers_version", "model_type", "id2label", "label2id",
	"num_labels", "return_dict", "output_hidden_states", "output_attentions", "use_cache", "is_encoder_decoder", "is_decoder",
	"add_cross_attention", "cross_attention_hidden_size", "tie_encoder_decoder", "tie_word_embeddings", "pruned_heads",
	"chunk_size_feed_forward", "problem_type", "quantization_config", "attn_implementation", "rope_scaling", "rope_theta",
	"rope_parameters", "partial_rotary_factor", "rotary_pct", "rotary_emb_base", "task_specific_params", "finetuning_task", "prefix", "name_or_path",
	"gradient_checkpointing", "pretraining_tp", "tokenizer_class", "torchscript", "use_bfloat16", "tf_legacy_loss",
	"unsloth_version", "unsloth_fixed", "mlp_bias", "attention_bias", "layer_types", "hidden_act", "head_dim", "sliding_window",
	"max_length", "min_length", "max_new_tokens", "do_sample", "early_stopping", "num_beams", "num_beam_groups",
	"diversity_penalty", "temperature", "top_k", "top_p", "typical_p", "repetition_penalty", "length_penalty",
	"no_repeat_ngram_size", "encoder_no_repeat_ngram_size", "bad_words_ids", "num_return_sequences", "output_scores",
	"return_dict_in_generate", "remove_invalid_values", "exponential_decay_length_penalty", "suppress_tokens",
	"begin_suppress_tokens", "max_value_projector_patch_to_query_dict", "output_router_logits", "router_dtype",
	"batch_norm_momentum", "initializer_factor", "initializer_cutoff_factor", "label_names", "stage_names", "out_features",
	"out_indices", "loss_reduction", "normalize_pixel_loss", "mask_index", "unk_index", "scale", "n_ctx", "gradient_clip",
	"resid_pdrop", "bos_token", "eos_token", "pad_token", "image_size", "num_channels", "num_hidden_layers", "vocab_size",
	"max_position_embeddings", "original_max_position_embeddings", "kv_channels", "seq_length", "ep_size", "aux_loss_alpha",
	"seq_aux", "use_mrope", "cache_implementation", "position_embedding_type", "classifier_dropout", "use_parallel_residual",
	"language_model_only", "quantization", "dense_act_fn", "is_gated_act", "scale_decoder_outputs", "pooler_output_size", "mtp_num_hidden_layers", "num_nextn_predict_layers", NULL};
static const char *const harmless_tails[] = {"_token_id",  "_token_index", "_eps",
					     "_epsilon",   "_range",	   "_std",
					     "_coef",	   "_coefficient", "_init_value",
					     "_prob_mask", "_loss_weight", "_scheme",
					     NULL};

static bool ends_with(const char *s, const char *tail)
{
	const size_t n = strlen(s), k = strlen(tail);

	return n > k && !strcmp(s + n - k, tail);
}

static bool known(const struct oom_model *m, const char *name)
{
	char path[160];

	if (*name == '_')
		return true;
	for (size_t i = 0; harmless[i]; i++)
		if (!strcmp(harmless[i], name))
			return true;
	for (size_t i = 0; harmless_tails[i]; i++)
		if (ends_with(name, harmless_tails[i]))
			return true;
	/* another name that leads to one of the type's */
	for (size_t i = 0; i < m->defaults.n; i++)
		if (!strncmp(m->defaults.items[i].path, "aliases.", 8) &&
		    m->defaults.items[i].type == OOM_KEY_STRING &&
		    (!strcmp(m->defaults.items[i].path + 8, name) ||
		     !strcmp(m->defaults.items[i].string, name)))
			return true;
	if (snprintf(path, sizeof(path), "defaults.%s", name) >= (int)sizeof(path))
		return false;
	if (oom_keys_find(&m->defaults, path))
		return true;
	snprintf(path, sizeof(path), "sub_configs.%s", name);
	return oom_keys_find(&m->defaults, path) != NULL;
}

/* Configs from before text models had a config of their own (Qwen2-VL, Qwen2.5-VL) hold its keys at the
 * top, where transformers still reads them. */
static bool is_flat(const struct oom_model *m)
{
	const size_t skip = strlen(m->prefix);

	if (!oom_keys_find(&m->defaults, "sub_configs.text_config"))
		return false;
	for (size_t i = 0; i < m->keys->n; i++)
		if (!strncmp(m->keys->items[i].path, m->prefix, skip) &&
		    !strncmp(m->keys->items[i].path + skip, "text_config", 11))
			return false;
	return true;
}

void oom_model_find_unknown(struct oom_model *m)
{
	const size_t skip = strlen(m->prefix);
	size_t used = 0, more = 0;

	m->unknown[0] = 0;
	if (!m->defaults.n || m->arch.approximate || is_flat(m))
		return;                         /* nothing to hold the keys against */
	for (size_t i = 0; i < m->keys->n; i++) {
		const struct oom_key *k = &m->keys->items[i];
		const char *name = k->path + skip;

		if (strncmp(k->path, m->prefix, skip) || strchr(name, '.') || known(m, name))
			continue;
		if (used + strlen(name) + 40 > sizeof(m->unknown)) {
			more++;
			continue;
		}
		used += (size_t)snprintf(m->unknown + used, sizeof(m->unknown) - used,
					 "%s%s (line %u)", used ? ", " : "", name, k->line);
	}
	if (more)
		snprintf(m->unknown + used, sizeof(m->unknown) - used, " and %zu more", more);
}
