/* Bytes as letters, as GPT-2's tokenizer has them: a byte that is a printable letter of
   Latin-1 is that letter, and each other byte is one of those from U+0100 on, in order. */
// SPDX-License-Identifier: Apache-2.0
#ifndef DN_TOKENS_BYTE_LETTERS_H
#define DN_TOKENS_BYTE_LETTERS_H

#include "tokens/growing.h"

/* Appends the letters of bytes. */
danaus_status dn_put_byte_letters(span bytes, growing *to);

/* Appends the bytes of letters; a text with any other letter stays as it is. */
danaus_status dn_put_letter_bytes(span letters, growing *to);

/* Appends what of `bytes` is UTF-8; each beginning of a letter that breaks off, and each other
   wrong byte, becomes U+FFFD. */
danaus_status dn_put_utf8(span bytes, growing *to);

#endif
