/* A driver of CUDA 11.0 that shows no more than its age, as libcuda.so.1. It makes the file that
   KVSCOPE_OLD_DRIVER_ASKED names when it was asked for its version. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SHOWN __attribute__((visibility("default")))

static long nothing(void) {
  return 0;
}

SHOWN int cuInit(unsigned flags) {
  (void)flags;
  return 0;
}

SHOWN int cuDriverGetVersion(int* version) {
  const char* name = getenv("KVSCOPE_OLD_DRIVER_ASKED");
  FILE* file = name ? fopen(name, "w") : NULL;
  if (file) fclose(file);
  *version = 11000;
  return 0;
}

SHOWN int cuGetExportTable(const void** table, const void* id) {
  static void* entries[256];
  (void)id;
  entries[0] = (void*)sizeof entries;
  for (int i = 1; i < 256; ++i) entries[i] = (void*)nothing;
  *table = entries;
  return 0;
}

SHOWN int cuGetProcAddress_v2(const char* name, void** entry, int version, unsigned long flags,
                              int* status) {
  (void)version, (void)flags;
  if (status) *status = 0;
  *entry = strcmp(name, "cuInit") == 0               ? (void*)cuInit
           : strcmp(name, "cuDriverGetVersion") == 0 ? (void*)cuDriverGetVersion
           : strcmp(name, "cuGetExportTable") == 0   ? (void*)cuGetExportTable
           : strcmp(name, "cuGetProcAddress") == 0   ? (void*)cuGetProcAddress_v2
                                                     : (void*)nothing;
  return 0;
}

SHOWN int cuGetProcAddress(const char* name, void** entry, int version, unsigned long flags) {
  return cuGetProcAddress_v2(name, entry, version, flags, NULL);
}
