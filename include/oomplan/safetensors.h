/* Names, types and shapes of the tensors of a checkpoint, from the headers of its safetensors
 * files.
 *
 * A safetensors file is 8 bytes of little-endian header length, a JSON header, and the tensors'
 * bytes without a hole (https://github.com/huggingface/safetensors, README, "Format").  Only
 * headers are read, never tensor data. */
#ifndef OOMPLAN_SAFETENSORS_H
#define OOMPLAN_SAFETENSORS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "oomplan/status.h"

#ifdef __cplusplus
extern "C" {
#endif

#define OOM_TENSOR_MAX_DIMS 8

struct oom_tensor {
	const char *name;  /* owned by the oom_tensors it stands in */
	const char *dtype; /* as written: "BF16", "F32", "F8_E4M3", ...; NULL if the shape is
			      unknown */
	const char *file;  /* the file's name within the folder; owned in the same way */
	uint64_t shape[OOM_TENSOR_MAX_DIMS];
	uint64_t elems; /* the product of the shape, 1 for a scalar; 0 if the shape is unknown */
	uint64_t bytes;
	uint32_t n_dims;
	bool is_known; /* false: the index names the tensor, but its file is missing */
};

/* Tensors sorted by name (strcmp order), without duplicates.  The caller of oom_tensors_read owns them and
 * calls oom_tensors_release. */
struct oom_tensors {
	struct oom_tensor *items;
	size_t n;
	uint64_t total_elems; /* of the known tensors.  A tied matrix is stored once; packed 4-bit
				 weights count with their bytes */
	uint64_t total_bytes;
	uint64_t index_bytes; /* metadata.total_size of the index, or 0 */
	uint64_t index_elems; /* metadata.total_parameters of the index, or 0 */
	uint32_t n_files, n_missing_files;
	void *arena; /* private */
};

/* Reads one .safetensors file, or a model's folder in the order in which transformers looks: first
 * model.safetensors, then the files of model.safetensors.index.json, then every *.safetensors.  A folder
 * without any gives OOM_OK and n = 0.  A missing file that the index names is counted in n_missing_files,
 * and its tensors are unknown.
 * OOM_ERR_IO: it cannot be read.
 * OOM_ERR_PARSE: a header above 100 MB (the format's own limit) or not JSON.
 * OOM_ERR_INVALID: shapes, types and offsets that do not agree with each other or with the file's
 * size (a download cut short).
 * OOM_ERR_LIMIT: more than OOM_TENSOR_MAX_DIMS dimensions, 2^53 elements or 4096 files. */
OOM_API enum oom_status oom_tensors_read(struct oom_tensors *out, const char *path,
					 struct oom_error *err);
/* Frees the tensors.  A zeroed struct and NULL are accepted. */
OOM_API void oom_tensors_release(struct oom_tensors *tensors);
/* The tensor with this name, or NULL. */
OOM_API const struct oom_tensor *oom_tensors_find(const struct oom_tensors *tensors,
						  const char *name);

#ifdef __cplusplus
}
#endif

#endif
