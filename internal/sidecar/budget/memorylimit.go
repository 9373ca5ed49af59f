package budget

const (
	// defaultBytes is the budget of an adapter without a memory limit. It is the same as under
	// the default limit in a pod, 256 MiB.
	defaultBytes = 128 << 20
	// LimitShare is the part of the memory limit that messages of clients and servers can
	// fill: one in so many bytes. The rest is for the program itself, and for garbage.
	LimitShare = 2
	// messageShare is how often the largest message fits into the budget. Large bodies leave
	// an eighth of the budget to small ones, so a message of all of it would never fit.
	messageShare = 2
)

// BytesFor returns the size of the budget under a memory limit. 0 is no limit: then the largest
// message always fits.
func BytesFor(memoryLimit, largestMessage int64) int64 {
	if memoryLimit == 0 {
		return max(defaultBytes, messageShare*largestMessage)
	}
	return memoryLimit / LimitShare
}

// Holds reports whether a budget of so many bytes has room for a message.
func Holds(bytes, message int64) bool { return messageShare*message <= bytes }

// LimitFor returns the least memory limit whose budget has room for a message.
func LimitFor(message int64) int64 { return messageShare * LimitShare * message }
