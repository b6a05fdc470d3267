/** How many digits a currency has after the decimal point, if not two (ISO 4217, list one, of 2024-06-25). */
export const minorDigits: Readonly<Record<string, number>> = Object.fromEntries([
  ..."BIF CLP DJF GNF ISK JPY KMF KRW PYG RWF UGX UYI VND VUV XAF XOF XPF".split(" ").map(name => [name, 0]),
  ..."BHD IQD JOD KWD LYD OMR TND".split(" ").map(name => [name, 3]),
])
