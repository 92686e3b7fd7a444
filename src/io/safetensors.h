/* The constants of the safetensors format. */
// SPDX-License-Identifier: Apache-2.0
#ifndef DN_IO_SAFETENSORS_H
#define DN_IO_SAFETENSORS_H

#define SAFETENSORS_LENGTH       8         /* bytes of the header's length */
#define SAFETENSORS_HEADER_LIMIT 100000000 /* bytes of a header, by the format */
#define SAFETENSORS_METADATA     "__metadata__"
#define SAFETENSORS_PAIRS        "danaus c128" /* names of tensors of c128, in the metadata */

#endif
