package adapterapi

// MinRSABits is the size of the smallest RSA key that counts. The library that reads keys bounds the largest:
// 4096 bits.
const MinRSABits = 2048

// IsPrivateJWK says whether a JSON Web Key has a member that only its owner may know. An issuer that publishes one
// has lost the key, so it verifies nothing. A symmetric key is all private.
func IsPrivateJWK[V any](members map[string]V) bool {
	for _, name := range []string{"d", "p", "q", "dp", "dq", "qi", "oth", "k"} {
		if _, has := members[name]; has {
			return true
		}
	}
	return false
}
