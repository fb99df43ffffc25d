/* Configs that tests of library generations and of FSDP's readings share. */
#ifndef OOM_TESTS_GENERATION_CONFIGS_H
#define OOM_TESTS_GENERATION_CONFIGS_H

/* Qwen/Qwen2.5-0.5B, config.json */
#define QWEN \
	"{\"model_type\":\"qwen2\",\"vocab_size\":151936,\"hidden_size\":896," \
	"\"intermediate_size\":4864,\"num_hidden_layers\":24,\"num_attention_heads\":14," \
	"\"num_key_value_heads\":2,\"tie_word_embeddings\":true}"

/* mistralai/Mistral-7B-v0.1, config.json, but for the depth */
#define MISTRAL(layers) \
	"{\"model_type\": \"mistral\", \"hidden_size\": 4096, \"intermediate_size\": 14336, " \
	"\"num_hidden_layers\": " #layers ", \"num_attention_heads\": 32, " \
	"\"num_key_value_heads\": 8, \"vocab_size\": 32000, \"sliding_window\": 4096}"

/* The same, of a type, a depth and as many positions. */
#define TABLED(type, layers, positions) \
	"{\"model_type\": \"" type "\", \"hidden_size\": 4096, \"intermediate_size\": 14336, " \
	"\"num_hidden_layers\": " #layers ", \"num_attention_heads\": 32, \"num_key_value_heads\": 8, " \
	"\"head_dim\": 128, \"vocab_size\": 32000, \"max_position_embeddings\": " #positions \
	", \"tie_word_embeddings\": false}"

/* mistralai/Mixtral-8x7B-v0.1, config.json */
#define MIXTRAL \
	"{\"model_type\": \"mixtral\", \"hidden_size\": 4096, \"intermediate_size\": 14336, " \
	"\"num_hidden_layers\": 32, \"num_attention_heads\": 32, \"num_key_value_heads\": 8, " \
	"\"vocab_size\": 32000, \"num_local_experts\": 8, \"num_experts_per_tok\": 2}"

#endif
