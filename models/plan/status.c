/* Words for failures. */
#include "oomplan/status.h"

#include <stdarg.h>
#include <stdio.h>

const char *oom_status_str(enum oom_status status)
{
	switch (status) {
	case OOM_OK: return "ok";
	case OOM_ERR_IO: return "cannot read or write";
	case OOM_ERR_PARSE: return "malformed input";
	case OOM_ERR_INVALID: return "invalid value";
	case OOM_ERR_UNKNOWN: return "unknown name";
	case OOM_ERR_MEMORY: return "out of host memory";
	case OOM_ERR_LIMIT: return "a built-in limit is exceeded";
	case OOM_ERR_INTERNAL: return "internal error";
	}
	return "unknown status";
}

enum oom_status oom_error_set(struct oom_error *err, enum oom_status status, const char *fmt, ...)
{
	va_list ap;

	if (!err)
		return status;
	va_start(ap, fmt);
	vsnprintf(err->text, sizeof(err->text), fmt, ap);
	va_end(ap);
	return status;
}
