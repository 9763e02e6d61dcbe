package kind

// Definition is the text of the definition.
var Definition = definition
