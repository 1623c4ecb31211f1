/* A libcuda.so.1 without a device, for hosts without NVIDIA's driver: NIXL's wheel does not load unless there is one. Every
 * function reports CUDA_ERROR_NO_DEVICE, which the CUDA runtime and NIXL take for a host without GPUs. */
#define NO_DEVICE 100

#define WITHOUT_DEVICE(name) \
	int name(void) \
	{ \
		return NO_DEVICE; \
	}

/* The CUDA runtime. */
WITHOUT_DEVICE(cuInit)
WITHOUT_DEVICE(cuDriverGetVersion)
WITHOUT_DEVICE(cuGetProcAddress)
WITHOUT_DEVICE(cuGetProcAddress_v2)
WITHOUT_DEVICE(cuGetExportTable)
WITHOUT_DEVICE(cuGetErrorString)
/* NIXL's backend for libfabric, and those that it loads to list them. */
WITHOUT_DEVICE(cuCtxGetCurrent)
WITHOUT_DEVICE(cuCtxSetCurrent)
WITHOUT_DEVICE(cuCtxGetDevice)
WITHOUT_DEVICE(cuDeviceGet)
WITHOUT_DEVICE(cuDeviceGetCount)
WITHOUT_DEVICE(cuDeviceGetPCIBusId)
WITHOUT_DEVICE(cuPointerGetAttribute)
WITHOUT_DEVICE(cuPointerGetAttributes)
