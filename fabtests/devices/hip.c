/* A stand-in for libamdhip64.so, ROCm's runtime, as far as network plugins use it: memory is that of the stand-in for
 * libhsa-runtime64.so.1. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stddef.h>

enum { SUCCESS = 0, OUT_OF_MEMORY = 2, NOT_SUPPORTED = 801 };
enum { MEMORY_TYPE = 2, DEVICE_ORDINAL = 9, DEVICE_MEMORY = 2 };

/* A function of the other stand-in. */
static void *hsa(const char *name)
{
	void *library = dlopen("libhsa-runtime64.so.1", RTLD_NOW);
	return library ? dlsym(library, name) : NULL;
}

int hipDriverGetVersion(int *version)
{
	*version = 50200000;
	return SUCCESS;
}

int hipRuntimeGetVersion(int *version)
{
	return hipDriverGetVersion(version);
}

int hipPointerGetAttribute(void *value, int attribute, void *at)
{
	(void)at;
	*(int *)value = attribute == MEMORY_TYPE ? DEVICE_MEMORY : 0;
	return attribute == MEMORY_TYPE || attribute == DEVICE_ORDINAL ? SUCCESS : NOT_SUPPORTED;
}

int hipMalloc(void **at, size_t len)
{
	void *(*alloc)(size_t) = (void *(*)(size_t))hsa("standin_alloc");
	*at = alloc ? alloc(len) : NULL;
	return *at ? SUCCESS : OUT_OF_MEMORY;
}

int hipFree(void *at)
{
	void (*release)(void *) = (void (*)(void *))hsa("standin_free");
	if (release)
		release(at);
	return SUCCESS;
}

int hipMemcpy(void *to, const void *from, size_t len, int kind)
{
	void (*copy)(void *, const void *, size_t) = (void (*)(void *, const void *, size_t))hsa("standin_copy");
	(void)kind;
	if (!copy)
		return NOT_SUPPORTED;
	copy(to, from, len);
	return SUCCESS;
}

/* What ROCm's build asks whether the library is there by. */
int hipMemAllocHost(void **at, size_t len)
{
	(void)at, (void)len;
	return NOT_SUPPORTED;
}
