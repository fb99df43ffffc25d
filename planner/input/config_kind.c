/* Which other JSON file this is, when it is not a model's config.json.
 *
 * People hand over the neighbours of config.json in a model folder, or the config of a trainer.
 * Each row names keys only that kind of file has; the first row that matches speaks.  The kinds are
 * those transformers, tokenizers, safetensors, peft, diffusers and DeepSpeed write (file names as
 * in their save_pretrained methods). */
#include "oomplan/config.h"

#include <string.h>

struct kind {
	const char *keys[3]; /* all of these are there */
	const char *hint;
};

static const struct kind kinds[] = {
	{{"weight_map"},
	 "this is the index of a sharded checkpoint (model.safetensors.index.json): give the "
	 "config.json beside it, or the folder"},
	{{"peft_type"},
	 "this is a LoRA adapter's adapter_config.json: give the base model's config.json and set "
	 "the rank, targets and dropout as options"},
	{{"_diffusers_version"},
	 "this is a diffusers config: only transformers models are planned"},
	{{"_class_name"},               /* model_index.json, of a pipeline's parts */
	 "this is a diffusers config: only transformers models are planned"},
	{{"pretrained_cfg"}, "this is a config of timm: only transformers models are planned"},
	{{"pre_tokenizer"}, "this is a tokenizer.json: give the config.json beside it"},
	{{"tokenizer_class"}, "this is a tokenizer_config.json: give the config.json beside it"},
	{{"added_tokens_decoder"},
	 "this is a tokenizer_config.json: give the config.json beside it"},
	{{"bos_token", "eos_token"},
	 "this is a special_tokens_map.json: give the config.json beside it"},
	{{"chat_template"}, "this is a chat template: give the config.json beside it"},
	{{"image_processor_type"},
	 "this is a preprocessor_config.json: give the config.json beside it"},
	{{"feature_extractor_type"},
	 "this is a preprocessor_config.json: give the config.json beside it"},
	{{"processor_class"}, "this is a processor_config.json: give the config.json beside it"},
	{{"image_mean", "image_std"},
	 "this is a preprocessor_config.json: give the config.json beside it"},
	{{"zero_optimization"}, "this is a DeepSpeed config: give the model's config.json"},
	{{"train_micro_batch_size_per_gpu"},
	 "this is a DeepSpeed config: give the model's config.json"},
	{{"log_history"}, "this is a trainer_state.json: give the config.json beside it"},
	{{"fsdp_config", "distributed_type"},
	 "this is an accelerate config: give the model's config.json"},
	{{"per_device_train_batch_size"},
	 "these are training arguments: give the model's config.json"},
	{{"dim", "n_layers", "n_heads"},
	 "this is a params.json in the layout of the original Llama or Mistral releases: give "
	 "the config.json of the converted model"},
	{{"max_new_tokens"}, "this is a generation_config.json: give the config.json beside it"},
	{{"_from_model_config"},
	 "this is a generation_config.json: give the config.json beside it"},
	{{"do_sample"}, "this is a generation_config.json: give the config.json beside it"},
	{{"transformers_version", "eos_token_id"},
	 "this looks like a generation_config.json: give the config.json beside it"},
};

static bool has_all(const struct oom_keys *keys, const struct kind *k)
{
	for (size_t i = 0; i < sizeof(k->keys) / sizeof(k->keys[0]) && k->keys[i]; i++)
		if (!oom_keys_find(keys, k->keys[i]))
			return false;
	return true;
}

/* A vocab.json: one flat object, every value a number, more of them than any config has. */
static bool is_vocabulary(const struct oom_keys *keys)
{
	if (keys->n < 500)
		return false;
	for (size_t i = 0; i < keys->n; i++)
		if (keys->items[i].type != OOM_KEY_NUMBER)
			return false;
	return true;
}

const char *oom_keys_kind_hint(const struct oom_keys *keys)
{
	/* what a config.json has and the others do not; older ones lack model_type,
	 * encoder-decoders hidden_size */
	static const char *const config_keys[] = {"model_type",  "architectures",
						  "hidden_size", "num_hidden_layers",
						  "n_embd",      "d_model"};

	for (size_t i = 0; i < sizeof(config_keys) / sizeof(config_keys[0]); i++)
		if (oom_keys_find(keys, config_keys[i]))
			return NULL;
	if (keys->n == 0)
		return "the object is empty: give a model's config.json";
	for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++)
		if (has_all(keys, &kinds[i]))
			return kinds[i].hint;
	return is_vocabulary(keys)
		       ? "this is a vocabulary (vocab.json): give the config.json beside it"
		       : NULL;
}
