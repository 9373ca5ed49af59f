package sessionid

import "encoding/base64"

// Unknown is the index of no key.
const Unknown = -1

// SealedBy returns which of the keys of New an id names, by its index, or Unknown. It reads the head of the id only,
// and does not tell whether the id is valid.
func (c *Codec) SealedBy(id string) int {
	const group, groups = 4, 2 // the head is in the first 8 characters
	if len(id) < group*groups {
		return Unknown
	}
	var head [3 * groups]byte
	if _, err := base64.RawURLEncoding.Strict().Decode(head[:], []byte(id[:group*groups])); err != nil {
		return Unknown
	}
	k, ok := c.keys[[keyIDSize]byte(head[1:headSize])]
	if !ok {
		return Unknown
	}
	return k.index
}
