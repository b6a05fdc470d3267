/** The names of fields that a merchant asks for. */

/**
 * A field's name for people.
 *
 * @example fieldTitle("shippingAddress") // "Shipping address"
 */
export const fieldTitle = (name: string): string => {
  const words = name.replace(/_+/g, " ").replace(/([a-z0-9])([A-Z])/g, "$1 $2")
  return words.charAt(0).toUpperCase() + words.slice(1).toLowerCase()
}
