/* Element types and their sizes. */
#ifndef OOM_DTYPE_H
#define OOM_DTYPE_H

#include <stdint.h>

enum oom_dtype { OOM_F32, OOM_DT_BF16, OOM_DT_F16, OOM_I64, OOM_I32, OOM_U8, OOM_F64 };

/* Bytes of one element. */
static inline uint32_t oom_dtype_bytes(enum oom_dtype dt)
{
	static const uint8_t bytes[] = {4, 2, 2, 8, 4, 1, 8};

	return bytes[dt];
}

static inline int oom_dtype_is_float(enum oom_dtype dt)
{
	return dt == OOM_F32 || dt == OOM_DT_BF16 || dt == OOM_DT_F16 || dt == OOM_F64;
}

#endif
