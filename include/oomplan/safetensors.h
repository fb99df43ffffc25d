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
	const char *dtype; /* as written: "BF16", "F32", "F8_E4M3", ...; NULL when the shape is not
			      known */
	const char *file;  /* the file's name within the folder; owned likewise */
	uint64_t shape[OOM_TENSOR_MAX_DIMS];
	uint64_t elems; /* product of the shape, 1 for a scalar; 0 when the shape is not known */
	uint64_t bytes;
	uint32_t n_dims;
	bool is_known; /* false: the index names the tensor, but its file is not there */
};

/* Owned by whoever called oom_tensors_read.  Sorted by name (strcmp order), names distinct. */
struct oom_tensors {
	struct oom_tensor *items;
	size_t n;
	uint64_t total_elems; /* of the known ones.  A tied matrix is stored once; packed 4-bit
				 weights count as their bytes */
	uint64_t total_bytes;
	uint64_t index_bytes; /* metadata.total_size of the index, 0 when it does not say */
	uint64_t index_elems; /* metadata.total_parameters of the index, 0 when it does not say */
	uint32_t n_files, n_missing_files;
	void *arena; /* private */
};

/* Reads one .safetensors file, or what a model folder holds, in the order transformers looks for
 * it: model.safetensors; else the files of model.safetensors.index.json; else every *.safetensors.
 * A folder without any gives OOM_OK and n = 0; a file the index names and that is absent is counted
 * in n_missing_files and its tensors are not known.
 * OOM_ERR_IO: cannot be read.
 * OOM_ERR_PARSE: a header above 100 MB (the format's own limit) or not JSON.
 * OOM_ERR_INVALID: shapes, types and offsets that do not agree with each other or with the file's
 * size (a download cut short).
 * OOM_ERR_LIMIT: more than OOM_TENSOR_MAX_DIMS dimensions, 2^53 elements or 4096 files. */
OOM_API enum oom_status oom_tensors_read(struct oom_tensors *out, const char *path,
					 struct oom_error *err);
/* Accepts zeroed and NULL. */
OOM_API void oom_tensors_release(struct oom_tensors *tensors);
/* The tensor, or NULL. */
OOM_API const struct oom_tensor *oom_tensors_find(const struct oom_tensors *tensors,
						  const char *name);

#ifdef __cplusplus
}
#endif

#endif
