package columns

import ()

// node.k8s.io
var (
	RuntimeClasses = of(name, str("Handler", "", text("handler")), age)
)
