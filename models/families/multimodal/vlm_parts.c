/* The compositions there are, and their sub configs as they are opened. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "families/towers/vision.h"

/* The sub configs' keys that vlm_list.h speaks of; "" is the whole file. */
#define TEXT_VISION {"text_config", "vision_config"}
#define LLM_VISION {"llm_config", "vision_config"}
#define TEXT_AUDIO {"text_config", "audio_config"}
#define TEXT_VISION_HIGH_RES_VISION {"text_config", "vision_config", "high_res_vision_config"}
#define TEXT_VISION_QFORMER {"text_config", "vision_config", "qformer_config"}
#define TEXT_VISION_PERCEIVER {"text_config", "vision_config", "perceiver_config"}
#define TEXT_VISION_VQ {"text_config", "vision_config", "vq_config"}
#define FILE_VQ {"", "vq_config"}
#define TEXT_VQ {"text_config", "vq_config"}
#define FILE_VISION_PERCEIVER {"", "vision_config", "perceiver_config"}
#define TEXT_VISION_AUDIO {"text_config", "vision_config", "audio_config"}
#define FILE {""}
#define TEXT {"text_config"}
#define TEXT_ENCODER_PROJECTOR {"text_config", "encoder_config", "projector_config"}
#define TEXT_ACOUSTIC_TOKENIZER_ENCODER_SEMANTIC_TOKENIZER_ENCODER {"text_config", "acoustic_tokenizer_encoder_config", "semantic_tokenizer_encoder_config"}
static const struct oom_composition compositions[] = {
#define COMPOSITION(type, parts, emit, flags) {type, parts, emit, flags},
#define REMOTE(type, parts, emit, flags) {type, parts, emit, flags},
#include "vlm_list.h"
#undef COMPOSITION
#undef REMOTE
};

const struct oom_composition *oom_composition_find(const char *type)
{
	for (size_t i = 0; i < sizeof(compositions) / sizeof(compositions[0]); i++)
		if (!strcmp(compositions[i].type, type))
			return &compositions[i];
	return NULL;
}

const char *oom_vlm_unasked(const struct oom_arch *a, enum oom_task task)
{
	const unsigned flags = a->vlm->kind->flags;

	if (task == OOM_TASK_CAUSAL_LM && a->vlm->alone)
		return "";
	if (!(flags & (OOM_VLM_RUNS | OOM_VLM_CROSSED)))
		return flags & OOM_VLM_AUDIO ? OOM_ON_WORDS_ALONE("audio takes", "it") : OOM_ON_WORDS_ALONE("images take", "them");
	if (flags & OOM_VLM_AUDIO)
		return OOM_WORDS_ALONE "; a run on audio takes more: --audio-seconds says how much of it a sample has";
	if (flags & OOM_VLM_HEARS)
		return OOM_WORDS_ALONE "; a run on images or audio takes more: --images N, --audio-seconds";
	return OOM_WORDS_ALONE "; a run on images takes more: --images N says how many of them a sample has";
}

void oom_vlm_free(struct oom_vlm *v)
{
	for (size_t i = 0; v && i < v->n_parts; i++)
		oom_keys_release(&v->part[i].defaults);
	free(v);
}

/* An old file, which has the text model's sizes at the top. */
static bool is_flat(const struct oom_reader *o)
{
	static const char *const sizes[] = {"hidden_size", "num_hidden_layers", "num_attention_heads",
					    "intermediate_size"};
	char path[120];

	for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
		snprintf(path, sizeof(path), "%s%s", o->prefix, sizes[i]);
		if (oom_keys_find(o->keys, path))
			return true;
	}
	return false;
}

/* Files from before parts had types of their own call a part by the name of the whole: the hub's Qwen2.5-VL
 * says "qwen2_5_vl" of its tower, as Qwen2_5_VLVisionConfig.model_type then was.  The class of such a part
 * is the composition's to say, whatever the file calls it (configuration_utils.py: sub_configs). */
static bool names_whole(const struct oom_vlm *v, const char *type, const struct oom_key *usual)
{
	return !strcmp(type, v->type) && usual && usual->type == OOM_KEY_STRING && *usual->string;
}

/* A sub config: absent as a whole, the composition's own defaults for it stand before those of
 * its type; and where the class merges the two, always (GlmAsrConfig._default_text_config_kwargs). */
void oom_vlm_open_part(struct oom_vlm *v, const char *key)
{
	struct oom_part *p = &v->part[v->n_parts++];
	const struct oom_reader *o = &v->outer;
	char path[200];
	const struct oom_key *k, *type, *usual;
	struct oom_error err;
	bool absent, merged;

	snprintf(path, sizeof(path), "merged.%s", key);
	merged = *key && oom_keys_find(o->defaults, path);
	snprintf(path, sizeof(path), "%s%s", o->prefix, key);
	k = oom_keys_find(o->keys, path);
	absent = *key && (!k || k->type != OOM_KEY_OBJECT);
	snprintf(path, sizeof(path), "%s%s.model_type", o->prefix, key);
	type = oom_keys_find(o->keys, path);
	snprintf(path, sizeof(path), "sub_configs.%s", key);
	usual = oom_keys_find(o->defaults, path);
	if (type && (type->type != OOM_KEY_STRING || names_whole(v, type->string, usual)))
		type = NULL;
	snprintf(p->type, sizeof(p->type), "%s",
		 !*key					? v->type :
		 type					? type->string :
		 usual && usual->type == OOM_KEY_STRING ? usual->string :
							  "");
	snprintf(p->prefix, sizeof(p->prefix), "%s%s%s", o->prefix, key, *key ? "." : "");
	if (absent && v->n_parts == 1 && v->kind->flags & OOM_VLM_FLAT) {
		if (is_flat(o)) {
			snprintf(p->prefix, sizeof(p->prefix), "%s", o->prefix);
			absent = false;
		}
	}
	if (oom_keys_defaults(&p->defaults, p->type, &err))
		memset(&p->defaults, 0, sizeof(p->defaults));
	p->rd = (struct oom_reader){.keys = o->keys, .defaults = &p->defaults, .prefix = p->prefix,
				    .family = p->type};
	/* PP-FormulaNet's text config has the composition's own type, whose defaults are those beside it */
	if (absent || merged || !usual || usual->type != OOM_KEY_STRING || !*usual->string ||
	    !strcmp(usual->string, v->type)) {
		snprintf(p->over_prefix, sizeof(p->over_prefix), "defaults.%s.", key);
		p->rd.over = o->defaults;
		p->rd.over_prefix = p->over_prefix;
	}
}
