/* The structure that a model type nobody modelled is counted with: read off the keys of its config.
 *
 * Such a type is never counted in silence: the warning names it, the structure, and the keys
 * that spoke for it. */
#include <stdio.h>
#include <string.h>

#include "model.h"

/* Sizes that make the parameter count: the config must say them, another type's defaults would
 * be a fiction. */
static const char *const sizes[] = {
	"hidden_size", "num_hidden_layers", "num_attention_heads", "num_key_value_heads", "intermediate_size", "vocab_size",
	"head_dim", "d_model", "d_ff", "d_kv", "num_layers", "num_heads", "num_decoder_layers", "encoder_layers", "decoder_layers",
	"encoder_attention_heads", "decoder_attention_heads", "encoder_ffn_dim", "decoder_ffn_dim", "n_embd", "n_layer", "n_head",
	"n_inner", "num_experts", "num_local_experts", "n_routed_experts", "num_experts_per_tok", "moe_intermediate_size",
	"state_size", "image_size", "patch_size", NULL};

/* In the order of trial.  A structure is taken when a key of `any` is there, and all of `all`. */
static const struct {
	const char *type, *what;
	const char *any[8], *all[2];
	bool images;            /* what has a vocabulary is none of it */
} structures[] = {
	{"t5", "an encoder-decoder like T5", {"num_decoder_layers", "relative_attention_num_buckets", "d_kv"}, {"is_encoder_decoder"}, false},
	{"bart", "an encoder-decoder like BART", {"is_encoder_decoder", "decoder_layers", "num_decoder_layers"}, {NULL}, false},
	{"swin", "windowed vision stages like Swin", {"depths"}, {"window_size"}, true},
	{"vit", "a vision encoder like ViT", {"patch_size", "image_size", "num_channels"}, {NULL},
	 true},
	{"deepseek_v3", "a decoder with latent attention and experts like DeepSeek-V3", {"n_routed_experts"}, {"kv_lora_rank"}, false},
	{"glm4_moe", "a decoder with routed and shared experts like GLM-4 MoE", {"n_routed_experts"}, {NULL}, false},
	{"youtu", "a decoder with latent attention", {"kv_lora_rank"}, {NULL}, false},
	{"mixtral", "a decoder with experts like Mixtral", {"num_local_experts", "num_experts"}, {NULL}, false},
	{"mamba", "a state-space model like Mamba", {"state_size"}, {"conv_kernel"}, false},
	{"llama", "a decoder like Llama",
	 {"num_key_value_heads", "rms_norm_eps", "rope_theta", "rope_parameters", "rope_scaling", "multi_query_group_num",
	  "num_kv_heads"}, {NULL}, false},
	{"bert", "an encoder like BERT", {"type_vocab_size", "hidden_dropout_prob", "attention_probs_dropout_prob"}, {NULL}, false},
	{"gpt2", "a decoder like GPT-2", {"n_embd", "n_layer", "n_positions", "n_head", "attn_pdrop"}, {NULL}, false},
	{"llama", "a decoder like Llama", {"hidden_size", "d_model", "dim", "num_hidden_layers"}, {NULL}, false},
};
enum { N_STRUCTURES = sizeof(structures) / sizeof(structures[0]) };

/* The key says yes: there, and neither null nor false. */
static bool has(const struct oom_model *m, const char *key)
{
	char path[200];
	const struct oom_key *k;

	if (!key || snprintf(path, sizeof(path), "%s%s", m->prefix, key) >= (int)sizeof(path))
		return false;
	k = oom_keys_find(m->keys, path);
	if (!k && m->defaults.n) {
		snprintf(path, sizeof(path), "defaults.%s", key);
		k = oom_keys_find(&m->defaults, path);
	}
	return k && k->type != OOM_KEY_NULL && !(k->type == OOM_KEY_BOOL && !k->number);
}

static bool has_size(const struct oom_model *m, const char *key)
{
	const char *w;

	for (size_t i = 0; (w = oom_read_other_word(key, i)); i++)
		if (has(m, w))
			return true;
	return false;
}

/* Multimodal configs keep the language model in a config of its own: steps into it.  Its type
 * may be a known one. */
static bool step_into_text(struct oom_model *m, struct oom_error *err, enum oom_status *st)
{
	static const char *const subs[] = {"text_config",
					   "language_config",
					   "llm_config",
					   "text_model_config",
					   "decoder_config",
					   "thinker_config.text_config",
					   NULL};
	char path[160];
	const struct oom_key *k, *type;

	if (has_size(m, "hidden_size") && has_size(m, "num_hidden_layers"))
		return false;
	for (size_t i = 0; subs[i]; i++) {
		const char *word = NULL;

		snprintf(path, sizeof(path), "%s%s", m->prefix, subs[i]);
		k = oom_keys_find(m->keys, path);
		if (!k || k->type != OOM_KEY_OBJECT)
			continue;
		snprintf(path, sizeof(path), "%s%s.model_type", m->prefix, subs[i]);
		type = oom_keys_find(m->keys, path);
		if (type && type->type == OOM_KEY_STRING)
			word = type->string;
		if (!word && m->defaults.n) {
			snprintf(path, sizeof(path), "sub_configs.%s", subs[i]);
			type = oom_keys_find(&m->defaults, path);
			word = type && type->type == OOM_KEY_STRING ? type->string : NULL;
		}
		snprintf(m->sub_prefix, sizeof(m->sub_prefix), "%s%s.", m->prefix, subs[i]);
		m->prefix = m->sub_prefix;
		snprintf(m->arch.model_type, sizeof(m->arch.model_type), "%s", word ? word : "");
		*st = oom_model_load_defaults(m, err);
		return true;
	}
	return false;
}

/* Keeps of another type's defaults what does not make the size. */
static void drop_sizes(struct oom_keys *defaults)
{
	size_t n = 0;

	for (size_t i = 0; i < defaults->n; i++) {
		const char *path = defaults->items[i].path;
		bool drop = !strncmp(path, "sub_configs.", 12);

		for (size_t j = 0; sizes[j] && !drop; j++)
			drop = !strncmp(path, "defaults.", 9) && !strcmp(path + 9, sizes[j]);
		if (!drop)
			defaults->items[n++] = defaults->items[i];
	}
	defaults->n = n;
}

static size_t choose(const struct oom_model *m, const char **key)
{
	for (size_t i = 0; i < N_STRUCTURES; i++) {
		if (structures[i].images && has_size(m, "vocab_size"))
			continue;
		if (structures[i].all[0] && !has(m, structures[i].all[0]))
			continue;
		for (size_t j = 0; j < 8 && structures[i].any[j]; j++)
			if (has(m, structures[i].any[j])) {
				*key = structures[i].any[j];
				return i;
			}
	}
	*key = NULL;
	return N_STRUCTURES;
}

static void near_word(const struct oom_model *m, char *out, size_t size)
{
	const char *types[1024], *near;
	size_t n = 0;

	*out = 0;
	for (size_t i = 0; oom_families[i]; i++)
		for (size_t j = 0; oom_families[i]->types[j].name && n < 1023; j++)
			types[n++] = oom_families[i]->types[j].name;
	types[n] = NULL;
	near = m->defaults.n ? NULL : oom_nearest_within(m->type, types, 2);
	if (near)
		snprintf(out, size, " (did you mean \"%s\"?)", near);
}

/* Types whose layers stand in another library, which their config.json only names. */
static const char *const elsewhere[][2] = {
	{"timm_wrapper", "its layers are the timm library's, of the model \"architecture\" names; "
			 "config.json holds no sizes. Give the config.json of a type that "
			 "transformers builds itself (resnet, vit, convnext, ...)"},
	{"dinat", "its attention is the natten library's and is not modelled; swin is the nearest "
		  "type that is"},
};

enum oom_status oom_model_choose_structure(struct oom_model *m, struct oom_error *err)
{
	struct oom_arch *a = &m->arch;
	const char *key = NULL, *what;
	enum oom_status st = OOM_OK;
	char near[120], part[120] = "";
	size_t i;

	near_word(m, near, sizeof(near));
	if (step_into_text(m, err, &st))
		snprintf(part, sizeof(part), " Only its %.*s is counted.",
			 (int)strnlen(m->prefix, 100) - 1, m->prefix);
	if (st)
		return st;
	a->approximate = true;
	a->rd.loose = true;
	a->family = *part ? oom_family_find(a->model_type) : NULL;
	if (a->family) {
		snprintf(m->like, sizeof(m->like), "%.60s (read as %.60s)", m->type, a->model_type);
		snprintf(m->note, sizeof(m->note),
			 "model type \"%s\" is not modelled%s: its language model is counted as "
			 "%s.%s "
			 "Parameters and memory are a guess.",
			 m->type, near, a->model_type, part);
		return OOM_OK;
	}
	for (i = 0; i < sizeof(elsewhere) / sizeof(elsewhere[0]); i++)
		if (!strcmp(m->type, elsewhere[i][0]))
			return oom_error_set(err, OOM_ERR_INVALID, "%s: model type \"%s\": %s",
					     m->keys->file, m->type, elsewhere[i][1]);
	i = choose(m, &key);
	if (i == N_STRUCTURES)
		return oom_error_set(err, OOM_ERR_INVALID,
				     "%s: model type \"%s\" is not modelled%s, and no key says "
				     "what it is like: "
				     "expected hidden_size, num_hidden_layers, "
				     "num_attention_heads, vocab_size, ...",
				     m->keys->file, m->type, near);
	what = structures[i].what;
	snprintf(a->model_type, sizeof(a->model_type), "%s", structures[i].type);
	a->family = oom_family_find(a->model_type);
	if (!m->defaults.n) {
		st = oom_model_load_defaults(m, err);
		if (st)
			return st;
		drop_sizes(&m->defaults);
	}
	snprintf(m->like, sizeof(m->like), "%.60s (not modelled, read as %s)", m->type, what);
	snprintf(m->note, sizeof(m->note),
		 "model type \"%s\" is not modelled%s: counted as %s, for its key %s.%s "
		 "Parameters and memory are a guess.",
		 m->type, near, what, key, part);
	return OOM_OK;
}
