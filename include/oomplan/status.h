/* What can go wrong, and the words for it.
 *
 * Every function that can fail returns enum oom_status: 0, or one of the negative codes below, with
 * its outputs untouched.  What the user needs to mend the input goes into a caller-owned struct
 * oom_error. */
#ifndef OOMPLAN_STATUS_H
#define OOMPLAN_STATUS_H

#if defined(OOM_BUILD)
#define OOM_API __attribute__((visibility("default")))
#else
#define OOM_API
#endif
#if defined(__GNUC__)
#define OOM_PRINTF(fmt, args) __attribute__((format(printf, fmt, args)))
#else
#define OOM_PRINTF(fmt, args)
#endif

#ifdef __cplusplus
extern "C" {
#endif

enum oom_status {
	OOM_OK = 0,
	OOM_ERR_IO = -1,       /* a file cannot be opened, read or written */
	/* the text is not JSON, CSV, ... at all, or too large or too deep for it */
	OOM_ERR_PARSE = -2,
	/* well-formed, but a value is missing, impossible or of the wrong kind */
	OOM_ERR_INVALID = -3,
	OOM_ERR_UNKNOWN = -4,  /* a name (GPU, model, knob, value) that no table has */
	OOM_ERR_MEMORY = -5,   /* malloc failed */
	/* a fixed capacity is exceeded (ledger rows, cells of a sweep, ...) */
	OOM_ERR_LIMIT = -6,
	/* an evaluation that contradicts itself: a defect of this library, never the user's */
	OOM_ERR_INTERNAL = -7,
};

/* Text of one failure, for one user.  Zero-initialise it; it owns nothing. */
struct oom_error {
	char text[480];
};

/* Words for a status: a static string, never NULL. */
OOM_API const char *oom_status_str(enum oom_status status);

/* Writes a printf-style text (cut to fit) into err, which may be NULL, and returns status. */
OOM_API enum oom_status oom_error_set(struct oom_error *err, enum oom_status status,
				      const char *fmt, ...) OOM_PRINTF(3, 4);

#ifdef __cplusplus
}
#endif

#endif
