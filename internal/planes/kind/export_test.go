package kind

// Definition is the text of the definition.
var Definition = definition

// Size is size.
var Size = size
